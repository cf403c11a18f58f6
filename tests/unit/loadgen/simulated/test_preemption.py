"""The selection of preempted calls in the batcher."""

from __future__ import annotations

import pytest
from weft_bench.simulated.displacing import CallSequence, victims
from weft_bench.simulated.engine import Work
from weft_engine.call_table import CallTable
from weft_engine.orders import build_order
from weft_engine.wire import CallContext


def scene(policy: str) -> tuple[CallTable, CallSequence, CallSequence]:
    """Return a running call of a long program and a waiting call of a new one."""
    ledger = CallTable(build_order(policy, {}))
    found = []
    for name, service in (("long", 100.0), ("new", 0.0)):
        context = CallContext(name, name, service)
        ledger.arrive(name, context, 0.0)
        work = Work(context=context, text=b"", prompt_tokens=64, output_tokens=9)
        found.append(CallSequence(name, work, [], blocks=[1, 2, 3, 4]))
    ledger.start("long", 0.0)
    return ledger, found[0], found[1]


def taken(policy: str, slots: int, free: int) -> list[str]:
    ledger, runs, waits = scene(policy)
    return victims(
        [waits],
        [runs],
        ledger,
        wants=lambda _: 4,
        slots=slots,
        free_blocks=free,
        block_tokens=16,
    )


@pytest.mark.parametrize("policy", ["plas", "warm_plas"])
def test_better_call_gets_a_slot_if_blocks_are_free(policy):
    assert taken(policy, slots=0, free=4) == ["long"]
    assert taken(policy, slots=1, free=4) == []


def test_orders_without_cache_affinity_preempt_for_blocks():
    assert taken("plas", slots=1, free=3) == ["long"]
    assert taken("warm_plas", slots=1, free=3) == []
    assert taken("warm_plas", slots=0, free=3) == []
