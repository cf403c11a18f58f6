"""The calls of batches and runs over HTTP beside those of clients."""

from __future__ import annotations

import asyncio
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
from weft_gateway.calls.client import Disconnect
from weft_gateway.runs.sender import Sender

pytestmark = pytest.mark.anyio

SLOTS = 16


class _Source:
    """Calls that end with `over`. third: set when three have begun."""

    tenant = ""

    def __init__(self) -> None:
        self.in_flight: dict[int, Disconnect] = {}
        self.begun = 0
        self.third, self.over = asyncio.Event(), asyncio.Event()

    def take(self, replica: object, replicas: object, near: object, now_s: float) -> int:
        self.begun += 1
        return self.begun

    def size(self, number: int) -> int:
        return 1

    async def serve(self, number: int, replica: str, client: object) -> int:
        if number == 3:
            self.third.set()
        await self.over.wait()
        return 0


def _sender(since_s: float, took_s: float) -> tuple[Sender, _Source]:
    """Return a sender to one replica. since_s: since a client used it. took_s: of its calls."""
    replica = SimpleNamespace(name="r", slots=SLOTS)
    rules = SimpleNamespace(calls_in_flight=0, requests_per_minute=0, tokens_per_minute=0)
    parts: Any = (
        SimpleNamespace(able=lambda: [replica]),
        SimpleNamespace(in_flight=lambda: {"r": 0}),
        SimpleNamespace(of=lambda tenant: rules, weight=lambda tenant: 1.0),
        SimpleNamespace(since_s=lambda name: since_s),
    )
    sender, source = Sender(*parts, 32), _Source()
    sender._took_s["r"] = took_s
    sender.sources["batch"] = cast("Any", source)
    return sender, source


async def test_calls_beside_clients_begin_apart(monkeypatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("weft_gateway.runs.sender.monotonic", lambda: now_s[0])
    sender, source = _sender(since_s=1.0, took_s=1.2)
    begun = []
    for _ in range(5):
        sender.dispatch()
        begun.append(source.begun)
        now_s[0] += 0.03
    # Twelve calls of 1.2 s: at least 0.05 s between two.
    assert begun == [1, 1, 2, 2, 3]
    source.over.set()
    await sender.aclose()


async def test_the_next_call_needs_no_other_event() -> None:
    sender, source = _sender(since_s=1.0, took_s=0.12)
    sender.dispatch()
    assert source.begun == 1
    await asyncio.wait_for(source.third.wait(), 20)
    source.over.set()
    await sender.aclose()


async def test_a_small_batch_does_not_wait_for_the_end_of_a_large_one() -> None:
    sender, large = _sender(since_s=inf, took_s=0.0)
    sender.dispatch()
    await asyncio.sleep(0)
    assert large.begun == SLOTS * 5 // 4
    small = sender.sources["small"] = cast("Any", _Source())
    small.tenant = large.tenant
    large.over.set()
    large.over = asyncio.Event()
    for _ in range(5):
        await asyncio.sleep(0)
    # The large one had begun all calls; both have as many now.
    assert (len(small.in_flight), len(large.in_flight)) == (SLOTS * 5 // 8, SLOTS * 5 // 8)
    small.over.set()
    large.over.set()
    await sender.aclose()


@pytest.mark.parametrize(("since_s", "took_s"), [(inf, 1.2), (1.0, 0.0)])
async def test_calls_alone_and_first_calls_begin_at_once(since_s: float, took_s: float) -> None:
    sender, source = _sender(since_s, took_s)
    sender.dispatch()
    assert source.begun == (SLOTS * 5 // 4 if since_s == inf else SLOTS * 3 // 4)
    source.over.set()
    await sender.aclose()
