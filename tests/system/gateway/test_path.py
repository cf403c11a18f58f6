"""The path of a call: as docs/structure.md lists it, and with any feature left out."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import weft_gateway
from support.sources import ROOT
from weft_gateway import app

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SOURCES = f"{Path(weft_gateway.__file__).parent}/"
MOST = 25
# The rooms of the path. The client's connection is not one of them, nor are the features.
ON_PATH = re.compile(r"(?:api|calls)/(?!edge|coalescing|connections|timers)\w+\.py")
FIRST = "Dispatcher.__call__"
LISTED = re.compile(r"^\| (\d+) \| `weft_gateway\.([\w.]+)` \| `([\w.]+)` \|", re.MULTILINE)
FEATURES = {
    "metrics": "MetricsObserver",
    "receipts": "ReceiptsObserver",
    "lineage": "LineageObserver",
    "prefills": "PrefillObserver",
    "prefills of turns that are foreseen": "AutoPrefill",
    "tool dispatch": "ToolDispatchObserver",
    "stored answers": "StoredAnswers",
    "learning of tokens": "TokenLearning",
    "limits": "LimitsObserver",
}


async def words(wire: Any, request: Any) -> None:
    """An engine that answers in the way that it was asked."""
    if request.json.get("stream"):
        word = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
        await wire.stream(word, word, b"data: [DONE]\n\n")
    else:
        await wire.plain({"object": "chat.completion", "choices": []})


class Trace:
    """The functions that another module of the path enters, in order, each once. Helpers within a
    module, constructors and properties are parts of these functions."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        module, name = _module(frame), code.co_name
        from_module = _module(frame.f_back) if frame.f_back else ""
        entered = from_module not in ("", module) or code.co_qualname == FIRST
        public = not name.startswith("_") or name in ("__call__", "__aenter__", "__aexit__")
        is_property = isinstance(getattr(type(frame.f_locals.get("self")), name, None), property)
        if not (module and entered and public) or is_property or "<" in code.co_qualname:
            return
        step = (module.removesuffix(".py").replace("/", "."), code.co_qualname)
        if step not in self.passed:
            self.passed.append(step)


def _module(frame: FrameType) -> str:
    """The file of the path that a frame runs, "" for any other."""
    file = frame.f_code.co_filename.removeprefix(SOURCES)
    return file if ON_PATH.fullmatch(file) else ""


@pytest.mark.parametrize("headers", [{"x-weft-program": "run"}, {}])
async def test_a_streamed_call_passes_the_functions_that_the_page_lists(
    headers: dict[str, str], engine: Any, weft: Any
) -> None:
    page = (ROOT / "docs/structure.md").read_text()
    listed = LISTED.findall(page)
    assert [int(number) for number, _, _ in listed] == list(range(1, len(listed) + 1))
    assert 10 < len(listed) <= MOST
    trace = Trace()
    async with engine(script=words) as stub, weft(stub) as gateway:
        body = {"stream": True, "messages": [{"role": "user", "content": "How far is it?"}]}
        assert (await gateway.call(body=body, headers=headers)).status_code == 200
        sys.setprofile(trace)
        try:
            got = await gateway.call(body=body, headers=headers)
        finally:
            sys.setprofile(None)
        assert got.text.endswith("data: [DONE]\n\n")
    assert trace.passed == [(module, name) for _, module, name in listed]


def without(feature: str) -> type[app.Gateway]:
    """The gateway of a composition root without one line."""
    source = Path(app.__file__).read_text()
    lines = source.splitlines(keepends=True)
    left = [line for line in lines if f"add({feature}(" not in line]
    assert len(left) == len(lines) - 1
    module = ModuleType(app.__name__)
    exec(compile("".join(left), app.__file__, "exec"), module.__dict__)
    found: type[app.Gateway] = module.Gateway
    return found


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
async def test_the_gateway_serves_calls_with_one_line_less(
    feature: str, engine: Any, weft: Any
) -> None:
    settings = {"requests_per_minute": 100, "auto_prefill": True}
    async with (
        engine(script=words) as stub,
        weft(stub, build=without(feature), **settings) as gateway,
    ):
        for headers in ({"x-weft-program": "run"}, {}):
            for stream in (False, True):
                got = await gateway.call(body={"stream": stream}, headers=headers)
                assert got.status_code == 200
                assert ("[DONE]" in got.text) is stream
        assert len(stub.requests) == 4
        (session,) = [
            session
            for session in (await gateway.client.get("/v1/sessions")).json()["data"]
            if session["id"] == "run"
        ]
        assert (session["calls"], session["calls_in_flight"], session["errors"]) == (2, 0, 0)


def test_every_feature_of_the_composition_root_can_be_left_out() -> None:
    source = Path(app.__file__).read_text()
    assert set(re.findall(r"^ +add\((\w+)\(", source, re.MULTILINE)) == set(FEATURES.values())
