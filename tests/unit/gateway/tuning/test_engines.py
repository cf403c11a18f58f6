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
    known = {"beta": 10.0, "resident_factor": 2.0} | options
    return {"weft": {}, "engines": [{"policy": policy, "options": known, "costs": costs, **limits}]}


def replica(name: str, *, healthy: bool = True, homes_until: float | None = None) -> Any:
    circuit = SimpleNamespace(healthy=healthy)
    return SimpleNamespace(
        name=name, circuit=circuit, homes_until=homes_until, served=frozenset({"n", "m"})
    )


class Client:
    """Answers by replica."""

    def __init__(self, states: dict[str, Any]) -> None:
        self.states = states

    async def fetch(self, one: Any, path: str, within_s: float) -> Any:
        assert path == "/weft/state"
        found = self.states[one.name]
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(json=lambda: json.loads(json.dumps(found)))


def engines(states: dict[str, Any], **replicas: Any) -> Engines:
    client: Any = Client(states)
    registry: Any = [replicas.get(name) or replica(name) for name in states]
    return Engines(registry, client)


def test_shapes_are_those_that_the_engines_report() -> None:
    found = asyncio.run(engines({"a": state(), "b": state()}).read())
    assert (found.order, found.options) == ("slack", {"beta": 10.0, "resident_factor": 2.0})
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
    found = asyncio.run(engines(states, sick=sick, draining=draining).read())
    assert [shape.name for shape in found.replicas] == ["a"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({}, "b does not report its step costs"),
        ({"weft": {}, "engines": [{"policy": "slack", "options": {}}]}, "b does not report"),
        (httpx.ReadTimeout("late"), "b does not report"),
        (ValueError("no JSON"), "b does not report"),
        (state("fcfs"), "different orders"),
        (state(beta=5.0), "different orders"),
    ],
)
def test_engines_that_cannot_be_replayed_are_named(other: Any, reason: str) -> None:
    with pytest.raises(EnginesUnknown, match=reason):
        asyncio.run(engines({"a": state(), "b": other}).read())


def test_no_engine_is_an_error() -> None:
    with pytest.raises(EnginesUnknown, match="no replica is healthy"):
        asyncio.run(engines({"a": state()}, a=replica("a", healthy=False)).read())
