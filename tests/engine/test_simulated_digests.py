"""Digests of the simulator's results: an optimization must not change any byte.

All inputs are integers and multiples of a tick, so results do not depend on a machine's logarithm.
A changed digest means changed decisions. If the change is intended, take the new digest from the
failed test's message and explain it in the changelog.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from support.simulated import engine, ready
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.overlap import Overlap
from weft_bench.virtual.world import Setup, simulate
from weft_bench.workloads.schema import Part, TraceCall
from weft_bench.workloads.streams import stream

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 0.25, "beta": 2.0}
AHEAD = Overlap(split=True, dispatch=True, retain_s=4.0)
# Order, replicas, events beside calls, and the digest of all records.
CASES = {
    "plas": ("plas", 1, Overlap(), {}, "1c80446ef91cfd3a"),
    "plas, ahead": ("plas", 1, AHEAD, {}, "cc7e8aa8435638f4"),
    "plas, three replicas": ("plas", 3, Overlap(), {}, "394a0013ff94f640"),
    "fcfs, three replicas, ahead": ("fcfs", 3, AHEAD, {}, "3e6ca32940ce1f93"),
    "mlfq, swap": ("mlfq", 1, Overlap(), {"swap_gib": 0.25}, "4e8e9af4e02e88d8"),
    "atlas, no tags": ("atlas", 2, Overlap(), {"tags": False}, "b33db76ac3d3e189"),
}


def agent(number):
    """A program whose context grows, with tools, and two calls side by side now and then."""
    draw = stream(11, f"golden/{number}")
    name = f"agent-{number}"
    parts = (Part("system", 150, "system"), Part(f"{name}/task", draw.randrange(20, 200), "user"))
    calls, last = [], ()
    for turn in range(draw.randrange(2, 6)):
        tools = tuple(draw.randrange(1, 9) / 4 for _ in range(draw.randrange(3)))
        tokens = draw.randrange(2, 130)
        call = TraceCall(
            parts=parts,
            output_tokens=tokens,
            gap_s=max(tools, default=0.0),
            tool_s=tools,
            after=last,
            answer=f"{name}/answer/{turn}",
        )
        width = 1 + (draw.randrange(4) == 0)
        last = tuple(range(len(calls), len(calls) + width))
        calls += [call] * width
        said = Part(f"{name}/tools/{turn}", draw.randrange(1, 120), "tool")
        parts += (Part(f"{name}/answer/{turn}", tokens, "assistant"), said)
    return ready(name, *calls)


@pytest.mark.parametrize("case", CASES)
def test_the_records_are_what_they_were(case):
    policy, replicas, overlap, changes, digest = CASES[case]
    shapes = [engine(slots=4 + i, kv_blocks=150 + 20 * i) for i in range(replicas)]
    programs = [agent(number) for number in range(24)]
    arrivals = [number / (4 * replicas) for number in range(24)]
    setup = Setup(shapes, EngineSettings(policy, OPTIONS, **changes), "locality", 200, 1)
    played = simulate(programs, arrivals, replace(setup, overlap=overlap))
    assert played.violations == ()
    assert max(call.waiting_s for call in played.calls) > 0.1
    assert sha256(played.lines().encode()).hexdigest()[:16] == digest
