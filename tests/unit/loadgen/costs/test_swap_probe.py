"""Measures swaps over HTTP, with an engine whose copies take a known time."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from support.serving import serving
from support.waiting import DEADLINE_S
from weft_bench.costs import swap_probe
from weft_bench.costs.step_probe import ProbeError
from weft_bench.costs.swap_probe import Moved, per_block, probe_swap, scenes

BLOCK = 16
CONTEXT = 1024
BLOCK_S = 0.002
STEP_S = 0.05


class Engine:
    """An engine with one slot. A call announced as short preempts the long one. A call of a whole
    context overwrites its blocks. The clock advances by the duration of each operation.
    """

    def __init__(self, swap=True, orders=True):
        self.now = 0.0
        self.swap = {"swapped_out": 0, "swapped_in": 0} if swap else None
        self.orders = orders
        self.policy = "resident"
        self.policies: list[str] = []
        self.blocks = 0
        self.saved = self.lost = False
        self.resume = asyncio.Event()
        self.lengths: list[int] = []

    def __call__(self, request):
        path = request.url.path
        if path == "/v1/models":
            card = {"id": "demo", "max_model_len": CONTEXT}
            return httpx.Response(200, json={"data": [card]})
        if path == "/weft/state":
            engine = {"policy": self.policy, "swap": dict(self.swap) if self.swap else None}
            return httpx.Response(200, json={"engines": [engine]})
        body = json.loads(request.content)
        if path == "/weft/policy":
            if body["policy"] == "plas" and not self.orders:
                return httpx.Response(400, text="unknown policy")
            self.policy = body["policy"]
            self.policies.append(self.policy)
            return httpx.Response(200, json={"engines": []})
        assert path == "/v1/completions"
        self.lengths.append(len(body["prompt"]))
        if body.get("stream"):
            self.blocks, self.saved, self.lost = len(body["prompt"]) // BLOCK, False, False
            self.resume.clear()
            return httpx.Response(200, content=self.answer())
        assert body["vllm_xargs"]["weft_service"] == 0.0
        if not self.saved:
            self.saved = True
            self.swap["swapped_out"] += self.blocks
            self.now += self.blocks * BLOCK_S
        self.now += STEP_S
        if len(body["prompt"]) > CONTEXT // 2:
            self.lost = True
            self.resume.set()
        return httpx.Response(200, json={})

    async def answer(self):
        for _ in range(5):
            self.now += STEP_S
            yield b'data: {"token": 1}\n\n'
        async with asyncio.timeout(DEADLINE_S):
            await self.resume.wait()
        # The call that preempted it is answered first.
        for _ in range(5):
            await asyncio.sleep(0)
        self.swap["swapped_in"] += self.blocks
        self.now += STEP_S + self.blocks * BLOCK_S
        yield b'data: {"token": 2}\n\ndata: [DONE]\n\n'


def measure(engine, rounds=2):
    progress = []

    async def run():
        async with serving(engine) as url:
            return await probe_swap(url, rounds, lambda: progress.append(1), lambda: engine.now)

    found = asyncio.run(run())
    assert len(progress) == scenes(rounds)
    return found


def test_time_of_a_block_is_separated_from_other_costs():
    engine = Engine()
    assert measure(engine) == pytest.approx(BLOCK_S, rel=0.01)
    # The previous order is restored.
    assert engine.policies == ["plas", "resident"]
    assert max(engine.lengths) < CONTEXT


@pytest.mark.parametrize(
    ("engine", "why"),
    [(Engine(swap=False), "without swap"), (Engine(orders=False), "unknown policy")],
)
def test_engine_that_cannot_be_measured_is_reported(engine, why):
    with pytest.raises(ProbeError, match=why):
        measure(engine)


@pytest.mark.parametrize("tokens", [2, 5])
def test_call_that_ends_too_early_is_an_error_without_a_wait(monkeypatch, tokens):
    engine = Engine()

    async def short():
        for _ in range(tokens):
            yield b'data: {"token": 1}\n\n'

    monkeypatch.setattr(engine, "answer", short)
    with pytest.raises(ProbeError, match="ended"):
        measure(engine)
    assert engine.policy == "resident"


def test_too_small_context_is_refused(monkeypatch):
    engine = Engine()
    monkeypatch.setattr(swap_probe, "_TOKENS", CONTEXT)
    with pytest.raises(ProbeError, match="context"):
        measure(engine)
    assert engine.policies == []


def test_both_directions_count_and_noise_never_gives_a_gain():
    few, many = Moved(10, 10, 0.1, 0.2), Moved(110, 110, 0.3, 0.6)
    assert per_block([few], [many]) == pytest.approx((0.002 + 0.004) / 2)
    assert per_block([few], [Moved(110, 110, 0.05, 0.1)]) == 0.0


def test_measurement_without_swaps_gives_no_time():
    with pytest.raises(ProbeError, match="no blocks were swapped"):
        per_block([Moved(0, 0, 0.1, 0.1)], [Moved(0, 0, 0.2, 0.2)])
