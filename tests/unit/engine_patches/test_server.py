"""The exit status of an engine's server. vLLM's parts are stood in for: what they do with a real
engine is in tests/system/real/test_life.py."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import weft_engine
from weft_engine import server


class Engine:
    """As AsyncLLM: after its end, however that came, it says that it is in error."""

    def __init__(self) -> None:
        self.errored = False
        self.ends = 0

    @classmethod
    def from_vllm_config(cls, **_: Any) -> Any:
        return cls()

    def shutdown(self, timeout: float | None = None) -> None:
        self.ends += 1
        self.errored = True


def test_an_engine_that_was_shut_down_has_not_died():
    engine = server.watched(Engine)()
    engine.shutdown(timeout=1.0)
    engine.shutdown()
    assert (engine.died, engine.ends) == (False, 2)


def test_one_that_was_in_error_before_has():
    engine = server.watched(Engine)()
    engine.errored = True
    engine.shutdown()
    assert engine.died


def test_one_that_still_runs_has_not_died():
    assert server.watched(Engine)().died is None


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The module that the server takes its parts from. `until_the_end(engine)` is the serving."""
    parts = SimpleNamespace(until_the_end=lambda engine: None)

    async def build_and_serve(engine: Any, *_: Any) -> Any:
        async def shutdown() -> None:
            parts.until_the_end(engine)

        return shutdown()

    class Arguments:
        enable_log_requests = disable_log_stats = False

        @staticmethod
        def from_cli_args(_: Any) -> Any:
            return Arguments()

        def create_engine_config(self, **_: Any) -> Any:
            return SimpleNamespace(shutdown_timeout=0)

    def parse_args(line: list[str]) -> Any:
        return SimpleNamespace(api_server_count=int(line[1]) if line else None)

    module = ModuleType("weft_engine.compat_serve")
    vars(module).update(
        make_arg_parser=lambda _: SimpleNamespace(parse_args=parse_args),
        validate_parsed_serve_args=lambda _: None,
        cli_env_setup=lambda: None,
        FlexibleArgumentParser=lambda **_: None,
        AsyncEngineArgs=Arguments,
        build_and_serve=build_and_serve,
        setup_server=lambda *_, **__: ("", SimpleNamespace(close=lambda: None)),
        UsageContext=SimpleNamespace(OPENAI_API_SERVER=""),
        AsyncLLM=Engine,
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(weft_engine, "compat_serve", module, raising=False)
    # The server takes this signal over.
    monkeypatch.setattr(server.signal, "signal", lambda *_: None)
    return parts


def test_a_server_that_is_asked_to_end_does_so_with_status_0(vllm):
    vllm.until_the_end = lambda engine: engine.shutdown(timeout=0)
    assert server.serve([], fork=False) == 0


def test_a_server_that_lost_its_engine_core_does_not(vllm):
    def dies(engine: Any) -> None:
        engine.errored = True

    vllm.until_the_end = dies
    assert server.serve([], fork=False) == server.CORE_DIED != 0


def test_a_server_that_is_interrupted_says_so(vllm):
    def interrupted(engine: Any) -> None:
        raise KeyboardInterrupt

    vllm.until_the_end = interrupted
    assert server.serve([], fork=False) == 130


def test_several_api_servers_are_refused_since_each_would_lose_reports(vllm, capsys):
    assert server.serve(["--api-server-count", "2"], fork=False) == 2
    assert "one API server" in capsys.readouterr().err
