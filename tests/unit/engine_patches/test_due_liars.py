"""A tenant that states wrong deadlines, costs or weights gains no due calls over another tenant."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.call_table import CallTable
from weft_engine.due_calls import DueCalls
from weft_engine.orders import build_order
from weft_engine.wire import CallContext

OPTIONS = {"due_margin_s": 4.0, "due_share": 0.75}


class Room:
    """An engine with slots, on which all calls still wait. calls: its table."""

    def __init__(self, slots: int, calls: CallTable) -> None:
        self._slots, self._calls = slots, calls

    def slots(self) -> int:
        return self._slots

    def free_slots(self) -> int:
        return self._slots

    def may_fit(self, sequence: str) -> bool:
        return True

    def first_not_due(self, tenant: str) -> str | None:
        return None


SECONDS = st.one_of(st.none(), st.floats(0, 12), st.just(1e12))
CONTEXT = st.builds(
    CallContext,
    call=st.just(""),
    program=st.just(""),
    budget_s=SECONDS,
    cost_s=SECONDS,
    left_s=SECONDS,
    path_s=SECONDS,
    deadline_s=SECONDS,
    slo_weight=st.sampled_from([1.0, 4.0, 1e6]),
    arrival_s=st.floats(0, 9),
)
CALLS = st.lists(CONTEXT, min_size=1, max_size=12)
WEIGHTS = st.sampled_from([1.0, 2.0, 5.0])


def due(calls: list[CallContext], slots: int, after_s: float) -> set[str]:
    """The calls that come first, some seconds after all of them came."""
    table = CallTable(build_order("slack", OPTIONS))
    for context in calls:
        table.arrive(context.call, context, 0.0)
    assert isinstance(table.layer, DueCalls)
    table.layer.refresh(after_s, Room(slots, table))
    return {context.call for context in calls if table.of(context.call).due}


def of(tenant: str, weight: float, calls: list[CallContext]) -> list[CallContext]:
    names = [f"{tenant}{number}" for number in range(len(calls))]
    return [
        replace(one, call=name, program=name, tenant=tenant, weight=weight)
        for name, one in zip(names, calls, strict=True)
    ]


@settings(deadline=None)
@given(CALLS, CALLS, st.data(), WEIGHTS, WEIGHTS, st.integers(1, 16), st.floats(0, 9))
def test_statements_of_one_tenant_change_no_due_call_of_another(
    honest, stated, data, weight, others, slots, after_s
):
    true = data.draw(st.lists(CONTEXT, min_size=len(stated), max_size=len(stated)))
    honest = of("honest", weight, honest)
    found = [
        {name for name in due([*honest, *of("liar", others, calls)], slots, after_s) if "h" in name}
        for calls in (true, stated)
    ]
    assert found[0] == found[1]


@settings(deadline=None)
@given(CALLS, CALLS, WEIGHTS, WEIGHTS, st.integers(1, 64), st.floats(0, 9))
def test_due_calls_of_a_tenant_stay_within_its_weight(honest, stated, weight, others, slots, after):
    calls = [*of("honest", weight, honest), *of("liar", others, stated)]
    counted = Counter(name.rstrip("0123456789") for name in due(calls, slots, after))
    for tenant, its in (("honest", weight), ("liar", others)):
        assert counted[tenant] <= max(1, 0.75 * slots * its / (weight + others))


def test_a_liar_with_due_calls_leaves_due_calls_to_the_honest_tenant():
    lies = [CallContext("", "", budget_s=1.0, cost_s=0.5, slo_weight=1e6)] * 30
    true = [CallContext("", "", budget_s=4.0, cost_s=2.0)] * 4
    found = due([*of("liar", 1.0, lies), *of("honest", 1.0, true)], 8, 0.0)
    assert Counter(name.rstrip("0123456789") for name in found) == {"liar": 3, "honest": 3}
