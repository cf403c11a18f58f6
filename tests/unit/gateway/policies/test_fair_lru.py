"""Capacity that tenants share: the choice of the evicted entry."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.fair_lru import FairLRU


def test_single_tenant_uses_all_and_loses_its_oldest_entry():
    room = FairLRU(3)
    assert [room.put("t", name) for name in "abc"] == [[]] * 3
    assert room.put("t", "d") == [("t", "a")]
    room.use("t", "b")
    assert room.put("t", "e") == [("t", "c")]


def test_largest_tenant_loses_entries_until_shares_are_equal():
    room = FairLRU(6)
    for name in range(6):
        room.put("loud", name)
    gone = [each for name in range(3) for each in room.put("quiet", name)]
    assert gone == [("loud", 0), ("loud", 1), ("loud", 2)]
    # Shares are equal now, so each further entry of a tenant evicts its own oldest one.
    for name in range(10, 60):
        [(tenant, _)] = room.put("loud", name)
        assert tenant == "loud"
    assert len(room) == 6


def test_existing_entry_is_not_added_again():
    room = FairLRU(2)
    room.put("t", "a")
    room.put("t", "b")
    assert room.put("t", "a") == []
    assert room.put("t", "c") == [("t", "b")]
    with pytest.raises(KeyError):
        room.drop("t", "b")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=120),
    st.integers(1, 9),
)
def test_evictions_equal_those_of_a_simple_model(steps, limit):
    room, kept = FairLRU(limit), []
    for tenant, name, drop in steps:
        entry = (f"t{tenant}", name)
        if drop:
            if entry in kept:
                kept.remove(entry)
                room.drop(*entry)
            continue
        gone = room.put(*entry)
        if entry in kept:
            kept.remove(entry)
        kept.append(entry)
        counts = Counter(owner for owner, _ in kept)
        assert len(gone) == (len(kept) > limit)
        for evicted in gone:
            owner, _ = evicted
            assert counts[owner] == max(counts.values())
            assert evicted == next(each for each in kept if each[0] == owner)
            kept.remove(evicted)
        assert len(room) == len(kept)
    for entry in kept:
        room.drop(*entry)
    assert (len(room), room._of, room._totals) == (0, {}, {})
