"""The books of the host buffer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine_patches.swap.slots import HostSlots


def contents(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def test_blocks_are_found_from_the_first_on_as_far_as_they_reach():
    slots = HostSlots(4)
    copies = slots.put("r", "t", contents("a", 3))
    assert [index for index, _ in copies] == [0, 1, 2]
    assert slots.match(contents("a", 5)) == [slot for _, slot in copies]
    assert slots.match(["b0", "a0"]) == []


def test_fresh_slots_follow_each_other_so_that_one_copy_moves_them():
    assert [slot for _, slot in HostSlots(8).put("r", "t", contents("a", 5))] == [0, 1, 2, 3, 4]


def test_what_is_here_is_not_copied_again():
    slots = HostSlots(8)
    slots.put("r", "t", contents("a", 3))
    assert [index for index, _ in slots.put("r", "t", contents("a", 5))] == [3, 4]
    assert slots.put("other", "t", contents("a", 5)) == []


def test_a_block_stays_while_somebody_owns_it():
    slots = HostSlots(8)
    slots.put("r", "t", contents("a", 2))
    slots.put("s", "t", contents("a", 1))
    slots.release("r")
    assert len(slots) == 1
    slots.release("s")
    assert len(slots) == 0


def test_the_least_recently_used_goes_and_of_one_call_its_end_first():
    slots = HostSlots(4)
    slots.put("r", "t", contents("a", 2))
    slots.put("s", "t", contents("b", 2))
    slots.put("x", "t", contents("c", 1))
    assert slots.match(contents("a", 2)) != []
    assert len(slots.match(contents("a", 2))) == 1
    assert len(slots.match(contents("b", 2))) == 2
    assert slots.dropped == 1


def test_a_call_does_not_push_out_its_own_prefix():
    slots = HostSlots(3)
    assert [index for index, _ in slots.put("r", "t", contents("a", 9))] == [0, 1, 2]
    assert slots.dropped == 0


def test_a_tenant_has_its_share_and_no_more():
    slots = HostSlots(8, tenant_share=0.5)
    slots.put("r", "greedy", contents("a", 8))
    assert len(slots) == 4
    slots.put("s", "modest", contents("b", 4))
    slots.put("x", "greedy", contents("c", 2))
    assert len(slots.match(contents("b", 4))) == 4
    assert slots.violations() == []


def test_a_buffer_of_no_slots_takes_nothing():
    slots = HostSlots(0)
    assert slots.put("r", "t", contents("a", 2)) == []
    assert slots.violations() == []


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "release", "match", "clear"]),
        st.sampled_from("rstu"),
        st.sampled_from(["one", "two"]),
        st.sampled_from("abc"),
        st.integers(0, 9),
    ),
    max_size=50,
)


@given(EVENTS, st.integers(0, 8), st.sampled_from([0.1, 0.5, 1.0]))
def test_any_course_of_events_leaves_the_books_in_order(events, count, share):
    slots = HostSlots(count, share)
    for kind, owner, tenant, name, length in events:
        if kind == "put":
            copies = slots.put(owner, tenant, contents(f"{tenant}{name}", length))
            targets = [slot for _, slot in copies]
            assert len(set(targets)) == len(targets)
            # All but what there was no room for can be found at once.
            found = slots.match(contents(f"{tenant}{name}", length))
            assert set(targets) <= set(found)
        elif kind == "release":
            slots.release(owner)
        elif kind == "match":
            slots.match(contents(f"{tenant}{name}", length))
        else:
            slots.clear()
        assert slots.violations() == []
    for owner in "rstu":
        slots.release(owner)
    assert len(slots) == 0
