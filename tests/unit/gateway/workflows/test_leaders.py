"""Leader calls of static prefixes."""

from __future__ import annotations

from support.planning import call, replica, static, varies
from weft_gateway.workflows.calls import PlannedCall, build_tree
from weft_gateway.workflows.leaders import Leader, leaders
from weft_gateway.workflows.placing import Share
from weft_gateway.workflows.problem import operations


def _leaders(
    calls: tuple[PlannedCall, ...], rows: int = 8, kv_tokens: int = 50_000
) -> tuple[Leader, ...]:
    found = operations(calls, build_tree(calls))
    shares = [Share(tuple(range(len(found))), (0, 1), (rows // 2,))]
    replicas = [replica("a", kv_tokens=kv_tokens), replica("b", kv_tokens=kv_tokens)]
    return leaders(found, shares, rows, replicas, [32, 32])


def test_long_static_prefix_is_computed_first_on_each_replica_that_uses_it() -> None:
    (leader,) = _leaders((call("a", static("s", 300), varies("q")),))
    assert (leader.operator, leader.tokens, leader.replicas, leader.after) == (0, 300, (0, 1), -1)
    assert not leader.pin


def test_short_prefix_and_single_call_need_no_leader() -> None:
    assert not _leaders((call("a", static("s", 100), varies("q")),))
    assert not _leaders((call("a", static("s", 300), varies("q")),), rows=2)


def test_longer_prefix_follows_the_one_that_it_extends() -> None:
    calls = (
        call("a", static("s", 300), varies("q")),
        call("b", static("s", 300), static("role", 250), varies("q")),
    )
    first, second = _leaders(calls)
    assert (first.tokens, second.tokens, second.after) == (300, 550, 0)


def test_prefix_is_pinned_if_its_uses_are_far_apart() -> None:
    calls = tuple(call(str(n), static(f"s{n}", 300), varies("q", 2000)) for n in range(8))
    found = _leaders(calls, kv_tokens=10_000)
    # At most a quarter of the cache.
    assert [one.pin for one in found] == [True] * 8
    assert [one.pin for one in _leaders(calls, kv_tokens=4_000)] == [True] * 3 + [False] * 5
    assert not any(one.pin for one in _leaders(calls, kv_tokens=10_000_000))
