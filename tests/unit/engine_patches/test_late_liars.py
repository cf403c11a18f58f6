"""A tenant that states wrong targets changes no place of a call of another tenant."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.call_table import CallTable
from weft_engine.orders import build_order
from weft_engine.tenant_queues import TenantQueues
from weft_engine.wire import CallContext


class Room:
    """An engine with slots."""

    def slots(self) -> int:
        return 4


SECONDS = st.one_of(st.none(), st.floats(0, 12), st.just(1e12))
CONTEXT = st.builds(
    CallContext,
    call=st.just(""),
    program=st.just(""),
    budget_s=SECONDS,
    cost_s=SECONDS,
    left_s=st.one_of(SECONDS, st.floats(-12, 0)),
    path_s=SECONDS,
    deadline_s=SECONDS,
    arrival_s=st.floats(0, 9),
)
CALLS = st.lists(CONTEXT, min_size=1, max_size=12)
WEIGHTS = st.sampled_from([1.0, 2.0, 5.0])


def of(tenant: str, weight: float, calls: list[CallContext]) -> list[CallContext]:
    names = [f"{tenant}{number}" for number in range(len(calls))]
    return [
        replace(one, call=name, program=name, tenant=tenant, weight=weight)
        for name, one in zip(names, calls, strict=True)
    ]


def admitted(calls: list[CallContext], after_s: float) -> list[str]:
    """All calls in the order of admission, some seconds after they came."""
    table = CallTable(build_order("slack", {}))
    queues = TenantQueues(table)
    for context in calls:
        table.arrive(context.call, context, 0.0)
    assert table.rule is not None
    table.rule.refresh(after_s, Room())
    queues.invalidate([context.call for context in calls])
    return queues.next(len(calls), lambda name: True)


@settings(deadline=None)
@given(CALLS, CALLS, st.data(), WEIGHTS, WEIGHTS, st.floats(0, 9))
def test_statements_of_one_tenant_move_no_call_of_another(
    honest, stated, data, weight, others, after_s
):
    true = data.draw(st.lists(CONTEXT, min_size=len(stated), max_size=len(stated)))
    honest = of("honest", weight, honest)
    found = [
        [
            name if name.startswith("honest") else "liar"
            for name in admitted([*honest, *of("liar", others, calls)], after_s)
        ]
        for calls in (true, stated)
    ]
    assert len(found[0]) == len(honest) + len(stated)
    assert found[0] == found[1]
