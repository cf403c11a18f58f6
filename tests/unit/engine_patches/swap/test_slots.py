"""Bookkeeping of the host buffer."""

from __future__ import annotations

import sys
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.swap.slots import HostSlots


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


def test_stored_blocks_are_not_copied_again():
    slots = HostSlots(8)
    slots.put("r", "t", contents("a", 3))
    assert [index for index, _ in slots.put("r", "t", contents("a", 5))] == [3, 4]
    assert slots.put("other", "t", contents("a", 5)) == []


def test_a_block_stays_while_a_sequence_owns_it():
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


def test_a_call_that_comes_back_shorter_gives_up_its_old_end_before_its_beginning():
    slots = HostSlots(4)
    slots.put("r", "t", contents("a", 4))
    slots.put("s", "t", contents("b", 2))
    assert len(slots.match(contents("a", 4))) == 2
    slots.put("r", "t", contents("a", 3))
    assert len(slots.match(contents("a", 4))) == 3
    assert slots.violations() == []


def test_slots_of_one_call_stay_together_after_many_have_come_and_gone():
    random, slots, alive = Random(1), HostSlots(1000), []
    moved = transfers = 0
    for number in range(300):
        copies = slots.put(f"r{number}", "t", contents(f"{number}-", random.randint(5, 150)))
        moved += len(copies)
        transfers += sum(
            k == 0 or slot != copies[k - 1][1] + 1 for k, (_, slot) in enumerate(copies)
        )
        alive.append(f"r{number}")
        while len(alive) > 20:
            slots.release(alive.pop(random.randrange(len(alive))))
    assert slots.dropped > 0
    assert moved / transfers > 5


def test_a_tenant_at_its_share_does_not_search_the_blocks_of_others():
    """With 20,000 blocks of another tenant in front, a search would look at 20 million."""
    slots = HostSlots(40_000, tenant_share=0.5)
    slots.put("old", "other", contents("a", 20_000))
    slots.put("r", "full", contents("b", 20_000))
    steps = 0

    def count(frame, event, arg):
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        slots.put("s", "full", contents("c", 1000))
    finally:
        sys.settrace(before)
    assert len(slots.match(contents("a", 20_000))) == 20_000
    assert steps < 200 * 1000


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
def test_any_sequence_of_events_keeps_the_state_consistent(events, count, share):
    slots, most = HostSlots(count, share), int(count * share) or min(count, 1)
    # The time of each block's last preemption: later is greater; within a call the first is
    # greatest.
    used: dict[str, tuple[int, int]] = {}
    tenant_of: dict[str, str] = {}
    for moment, (kind, owner, tenant, name, length) in enumerate(events):
        wanted = contents(f"{tenant}{name}", length)
        before = {c for c in used if slots.match([c])}
        if kind == "put":
            copies = slots.put(owner, tenant, wanted)
            for index, content in enumerate(wanted):
                used[content], tenant_of[content] = (moment, -index), tenant
            after = {c for c in used if slots.match([c])}
            check_put(copies, wanted, before, after, tenant, tenant_of, used, count, most)
        elif kind == "release":
            slots.release(owner)
        elif kind == "match":
            slots.match(wanted)
            assert {c for c in used if slots.match([c])} == before, "looking changes nothing"
        else:
            slots.clear()
            assert len(slots) == 0
        assert slots.violations() == []
    for owner in "rstu":
        slots.release(owner)
    assert len(slots) == 0


def check_put(copies, wanted, before, after, tenant, tenant_of, used, count, most):
    """Check the changes that a preemption may make to the buffer. before, after: its blocks."""
    targets = [slot for _, slot in copies]
    assert targets == sorted(set(targets)), "no slot is given twice"
    assert all(0 <= slot < count for slot in targets)
    assert {wanted[index] for index, _ in copies} == after - before, "copied is what was not here"
    mine = {c for c in after if tenant_of[c] == tenant}
    assert len(after) <= count
    assert len(mine) <= most
    here = [c in after for c in wanted]
    assert here == sorted(here, reverse=True), "a prefix is kept"
    dropped, others = before - after, after - set(wanted)
    for content in dropped:
        rivals = others if tenant_of[content] != tenant else others & mine
        assert all(used[content] < used[rival] for rival in rivals), "the least recently used goes"
    if dropped:
        assert len(after) == count or len(mine) == most, "nothing goes while there is room"
    if not all(here[:most]):
        crowd = mine if len(mine) == most else after
        assert crowd <= set(wanted), "only its own prefix keeps a block out"
