"""The engines as the tuner sees them, by scripted answers."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from weft_gateway.tuning.engines import Engines, EnginesUnknown
from weft_gateway.tuning.shapes import opaque


def state(policy: str = "slack", **options: float) -> dict[str, Any]:
    """Return the state of an engine with the plugin."""
    costs = {
        "step_s": 0.001, "weights_s": 0.02, "prefill_token_s": 3e-4, "decode_sequence_s": 4e-4,
        "context_token_s": 1e-8,
    }  # fmt: skip
    limits = {"slots": 16, "step_tokens": 2048, "kv_blocks": 1000, "block_tokens": 16}
    known = {"due_margin_s": 5.0, "due_share": 0.75} | options
    return {"weft": {}, "engines": [{"policy": policy, "options": known, "costs": costs, **limits}]}


def replica(name: str, *, healthy: bool = True, homes_until: float | None = None) -> Any:
    circuit = SimpleNamespace(healthy=healthy)
    return SimpleNamespace(
        name=name, circuit=circuit, homes_until=homes_until, served=frozenset({"n", "m"})
    )


class Client:
    """Answers by replica. A status other than 200 answers changes, an exception both."""

    def __init__(self, states: dict[str, Any], statuses: dict[str, Any]) -> None:
        self.states, self.statuses = states, statuses
        self.changes: dict[str, Any] = {}

    async def fetch(
        self, one: Any, path: str, within_s: float, method: str = "GET", message: Any = None
    ) -> Any:
        if path == "/weft/state":
            found = self.states[one.name]
            if isinstance(found, Exception):
                raise found
            return SimpleNamespace(json=lambda: json.loads(json.dumps(found)))
        assert (path, method) == ("/weft/policy", "POST")
        found = self.statuses.get(one.name, 200)
        if isinstance(found, Exception):
            raise found
        self.changes[one.name] = message
        return SimpleNamespace(status=found)


def engines(
    states: dict[str, Any], statuses: dict[str, Any] | None = None, **replicas: Any
) -> tuple[Engines, Client]:
    client: Any = Client(states, statuses or {})
    registry: Any = [replicas.get(name) or replica(name) for name in states]
    return Engines(registry, client), client


def test_shapes_are_those_that_the_engines_report() -> None:
    found = asyncio.run(engines({"a": state(), "b": state()})[0].read())
    assert (found.order, found.options) == ("slack", {"due_margin_s": 5.0, "due_share": 0.75})
    one = found.replicas[0]
    assert [shape.name for shape in found.replicas] == ["a", "b"]
    assert one.steps == (0.001, 0.02, 3e-4, 4e-4, 1e-8)
    assert (one.slots, one.step_tokens, one.kv_tokens) == (16, 2048, 16_000)
    # Names of models do not leave the gateway.
    assert one.models == (opaque("m"), opaque("n"))


def test_replicas_that_take_no_calls_are_left_out() -> None:
    sick, draining = replica("sick", healthy=False), replica("draining", homes_until=1.0)
    silent = httpx.ConnectError("no")
    states = {"a": state(), "sick": silent, "draining": state("fcfs")}
    found = asyncio.run(engines(states, sick=sick, draining=draining)[0].read())
    assert [shape.name for shape in found.replicas] == ["a"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({}, "b does not report its step costs"),
        ({"weft": {}, "engines": [{"policy": "slack", "options": {}}]}, "b does not report"),
        (httpx.ReadTimeout("late"), "b does not report"),
        (ValueError("no JSON"), "b does not report"),
        (state("fcfs"), "different orders"),
        (state(due_share=0.5), "different orders"),
    ],
)
def test_engines_that_cannot_be_replayed_are_named(other: Any, reason: str) -> None:
    with pytest.raises(EnginesUnknown, match=reason):
        asyncio.run(engines({"a": state(), "b": other})[0].read())


def test_no_engine_is_an_error() -> None:
    with pytest.raises(EnginesUnknown, match="no replica is healthy"):
        asyncio.run(engines({"a": state()}, a=replica("a", healthy=False))[0].read())


def test_only_options_that_differ_are_changed() -> None:
    """An engine that already has the values is left alone: each change reorders its queue."""
    both, client = engines({"a": state(), "b": state(due_margin_s=2.5)})
    assert asyncio.run(both.change({"due_margin_s": 2.5, "due_share": 0.75})) == []
    assert client.changes == {"a": {"policy": "", "options": {"due_margin_s": 2.5}}}


def test_engines_that_do_not_accept_a_change_are_returned() -> None:
    some, client = engines(
        {"a": state(), "b": state(), "c": {}, "d": state()},
        {"b": 400, "d": httpx.ConnectError("gone")},
    )
    assert asyncio.run(some.change({"due_share": 0.5})) == ["b", "c", "d"]
    assert set(client.changes) == {"a", "b"}
