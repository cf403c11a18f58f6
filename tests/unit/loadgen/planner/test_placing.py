"""Rows of operators on replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planning import call, chain, replica, static, varies
from weft_bench.planner.placing import Share, eligible, filled, place_rows, row_seconds
from weft_bench.planner.problem import operations
from weft_bench.planner.radix import build_tree
from weft_run.plan.calls import PlannedCall
from weft_run.plan.costs import Replica


def _placed(
    calls: tuple[PlannedCall, ...], rows: int, replicas: list[Replica]
) -> tuple[Share, ...]:
    found = operations(calls, build_tree(calls))
    able = eligible(found, replicas)
    return place_rows(found, rows, replicas, able, range(len(replicas)))


@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 10)), min_size=1, max_size=5),
)
def test_rows_are_divided_so_that_replicas_end_together(
    rows: int, replicas: list[tuple[float, float]]
) -> None:
    load, each = [one for one, _ in replicas], [one for _, one in replicas]
    parts = filled(rows, load, each)
    assert sum(parts) == rows
    assert min(parts) >= 0
    ends = [one + part * cost for one, part, cost in zip(load, parts, each, strict=True) if part]
    # Moving a row elsewhere does not help by more than a row.
    least = min(one + part * cost + cost for one, part, cost in zip(load, parts, each, strict=True))
    assert not ends or max(ends) <= least + max(each) + 1e-9


def test_slow_replica_gets_fewer_rows() -> None:
    (share,) = _placed(chain(), 90, [replica("a"), replica("b", slow=2.0)])
    assert share.replicas == (0, 1)
    assert share.bounds == (60,)
    assert [share.rows(at, 90) for at in (0, 1, 2)] == [60, 30, 0]


def test_models_stay_on_replicas_that_serve_them() -> None:
    calls = (
        call("a", static("s"), varies("q"), model="m"),
        call("b", static("s"), varies("q"), model="n"),
    )
    replicas = [replica("a", models=["m"]), replica("b", models=["m", "n"])]
    any_, only = _placed(calls, 40, replicas)
    assert only == Share((1,), (1,), ())
    # The second replica has all calls of the other model already.
    assert any_ == Share((0,), (0,), ())
    with pytest.raises(ValueError, match="a: no replica serves 'm'; served: n"):
        _placed(calls, 4, [replica("b", models=["n"])])


def test_fewer_rows_than_replicas_are_placed_by_prefix() -> None:
    calls = tuple(call(str(n), static(f"s{n}"), varies("q")) for n in range(4))
    shares = _placed(calls, 1, [replica("a"), replica("b")])
    assert sorted(share.replicas for share in shares) == [(0,), (0,), (1,), (1,)]


def test_costs_of_a_row_count_shared_prefixes_once() -> None:
    calls = (
        call("a", varies("q", 400)),
        call("b", varies("q", 400)),
        call("c", varies("r", 400)),
    )
    first, second, third = row_seconds(operations(calls, build_tree(calls)), replica("a"))
    assert first == pytest.approx(third)
    assert second < first


def test_share_scales() -> None:
    assert Share((0,), (0, 1), (50,)).scaled(100, 10) == Share((0,), (0, 1), (5,))


def test_odd_row_is_divided_by_prefix() -> None:
    calls = tuple(call(str(n), static(f"s{n}"), varies("q")) for n in range(4))
    found = operations(calls, build_tree(calls))
    two = [replica("a"), replica("b")]
    shares = place_rows(found, 13, two, eligible(found, two), (0, 1), whole=False)
    assert sorted(share.bounds for share in shares) == [(6,), (6,), (7,), (7,)]
    assert sorted(number for share in shares for number in share.operators) == [0, 1, 2, 3]
