"""Which replicas are members, and when one may be deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_gateway.model.member import Member, MemberState
from weft_gateway.policies.members import MAX_REMOVED, Use, effective, forgotten, obstacles

A, B = "http://a:8000", "http://b:8000"
DRAINING = Member("a", A, MemberState.DRAINING, 100.0, 60.0)
UNUSED = Use(0, 0)


def test_replicas_of_the_settings_are_members_before_added_ones() -> None:
    added = Member("b", B, since_s=5.0, added=True)
    found = effective({"z": A}, {"b": added})
    assert list(found.items()) == [("z", Member("z", A)), ("b", added)]


def test_a_removed_replica_of_the_settings_is_no_member() -> None:
    removed = Member("a", A, MemberState.REMOVED, 5.0)
    assert effective({"a": A}, {"a": removed}) == {}
    assert effective({"a": A}, {"a": replace(removed, added=True)}) == {}


def test_a_drain_of_a_replica_of_the_settings_applies_where_the_settings_have_it() -> None:
    assert effective({"a": A}, {"a": DRAINING}) == {"a": DRAINING}
    assert effective({"b": B}, {"a": DRAINING}) == {"b": Member("b", B)}
    assert effective({}, {"a": replace(DRAINING, added=True)}).keys() == {"a"}


def test_a_gateway_keeps_its_own_url_of_a_replica() -> None:
    assert effective({"a": B}, {"a": DRAINING})["a"] == replace(DRAINING, url=B)


def test_the_oldest_records_of_removed_replicas_go_first() -> None:
    records = {
        f"r{n}": Member(f"r{n}", A, MemberState.REMOVED, float(n)) for n in range(MAX_REMOVED + 2)
    }
    assert forgotten(records) == ["r0", "r1"]
    records["r0"] = Member("r0", A, added=True)
    assert forgotten(records) == ["r1"]
    assert forgotten({}) == []


def test_a_replica_that_nothing_needs_may_be_deleted_once_it_drains() -> None:
    assert obstacles(DRAINING, UNUSED, 100.0) == []
    assert obstacles(Member("a", A), UNUSED, 100.0) == ["it does not drain"]


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (Use(1, 0), "1 call in flight"),
        (Use(2, 0), "2 calls in flight"),
        (Use(0, 3), "home of 3 programs for 50 s at most"),
        (Use(0, 0, None), "Redis is away, so the calls of other gateways are unknown"),
        (Use(0, 0, 2), "2 gateways must still confirm the drain"),
        (Use(0, 0, 0, False, True), "a response is generated in the background"),
        (Use(0, 0, 0, False, False, 4), "4 requests in its engine"),
    ],
)
def test_each_use_is_an_obstacle(use: Use, why: str) -> None:
    assert obstacles(DRAINING, use, 110.0) == [why]


def test_homes_do_not_count_after_the_drain_time() -> None:
    assert obstacles(DRAINING, Use(0, 3), 160.0) == []
    assert obstacles(DRAINING, Use(1, 3), 160.0) == ["1 call in flight"]


def test_a_dead_process_has_nothing_to_lose_but_its_calls_must_end() -> None:
    assert obstacles(DRAINING, Use(0, 3, 0, True, True, 4), 110.0) == []
    assert obstacles(DRAINING, Use(1, 0, 0, True), 110.0) == ["1 call in flight"]
