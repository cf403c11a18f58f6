"""Merged steps give the same bytes as one step of vLLM's scheduler per token."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest
from support.simulated import chats, engine
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.replica import Replica
from weft_bench.virtual.world import Setup, simulate
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_engine.step_fit import StepMeter
from weft_engine.wire import CallContext

pytestmark = [pytest.mark.engine, pytest.mark.slow]

# A quantum that many calls exceed, and a beta at which calls starve.
OPTIONS = {"first_quantum_s": 0.25, "beta": 2.0}
CASES = {
    "room": ([engine(kv_blocks=4000)], "plas", {}),
    "short of slots": ([engine(slots=3)], "plas", {}),
    "short of blocks": ([engine(slots=16, kv_blocks=150)], "fcfs", {}),
    "short of both": ([engine(slots=4, kv_blocks=150)], "plas", {}),
    "swap": ([engine(slots=4, kv_blocks=150)], "mlfq", {"swap_gib": 0.25}),
    "no cache": ([engine(slots=6, kv_blocks=160)], "atlas", {"prefix_cache": False}),
    "no tags": ([engine(slots=6, kv_blocks=160)], "plas", {"tags": False}),
    "chunks": ([engine(slots=6, step_tokens=64)], "plas", {}),
    "fair": ([engine(slots=4, kv_blocks=160)], "vtc", {}),
    "residents": ([engine(slots=6, kv_blocks=160)], "resident", {}),
    "residents and short of slots": ([engine(slots=3)], "resident", {}),
    "slack": ([engine(slots=4, kv_blocks=160)], "slack", {}),
    "slack and short of slots": ([engine(slots=3)], "slack", {}),
    "groups": ([engine(slots=3)], "qlm", {}),
    "unequal": ([engine(), engine(slots=2, kv_blocks=150), engine(slots=3)], "plas", {}),
}


def with_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give two of three calls targets, some of which cannot be met."""
    add = Replica.add

    def adding(self: Replica, context: CallContext, *rest: Any) -> Any:
        number = int(blake2b(context.call.encode(), digest_size=4).hexdigest(), 16)
        if number % 3:
            seconds = 0.05 * 2.0 ** (number % 9)
            context = replace(
                context, budget_s=seconds, left_s=2 * seconds, deadline_s=3 * seconds,
                cost_s=0.1 * (number % 5),
            )  # fmt: skip
        return add(self, context, *rest)

    monkeypatch.setattr(Replica, "add", adding)


@pytest.mark.parametrize("case", CASES)
def test_merged_steps_decide_like_single_steps(case, monkeypatch):
    shapes, policy, changes = CASES[case]
    if policy in ("slack", "qlm"):
        with_targets(monkeypatch)
    programs = chats(5, 30, wide=True)
    arrivals = poisson_arrivals(stream(5, "arrivals"), 12.0 * len(shapes), len(programs))
    settings = EngineSettings(policy, OPTIONS, **changes)
    found = []
    for naive in (False, True):
        setup = Setup(shapes, replace(settings, naive=naive), threshold_tokens=200)
        found.append(simulate(programs, arrivals, setup))
    quick, naive = found
    assert quick.lines() == naive.lines()
    assert quick.violations == naive.violations == ()
    if case not in ("room", "unequal", "chunks"):
        assert max(call.waiting_s for call in quick.calls) > 0.1
    if "short of b" in case or case == "swap":
        assert sum(call.preemptions for call in quick.calls) > 0
    if case == "swap":
        assert sum(call.blocks_swapped_in for call in quick.calls) > 0


def test_engines_fit_their_costs_to_merged_steps_as_to_single_ones(monkeypatch):
    shapes = [engine(), engine(cost=replace(engine().cost, weights_s=0.02), slots=3)]
    programs = chats(6, 40, wide=True)
    arrivals = poisson_arrivals(stream(6, "arrivals"), 20.0, len(programs))
    deadlines = {program.id: 2.0 + number % 5 for number, program in enumerate(programs)}
    setup = Setup(shapes, EngineSettings("slack"), "soonest", 200, deadlines=deadlines)
    note, steps = StepMeter.note, []

    def noting(self: StepMeter, prompts: Any, *step: Any) -> None:
        steps.append((sum(prompts.values()), *step))
        note(self, prompts, *step)

    monkeypatch.setattr(StepMeter, "note", noting)
    found = []
    for naive in (False, True):
        settings = replace(setup.engine, naive=naive)
        steps.clear()
        lines = simulate(programs, arrivals, replace(setup, engine=settings)).lines()
        found.append((lines, sorted(steps)))
    assert found[0] == found[1]
