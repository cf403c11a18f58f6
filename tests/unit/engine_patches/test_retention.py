"""Tags, priorities and pins as they decide about tiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine_patches.retention import TIERS, Retention
from engine_patches.tags import Tag, TagSpans

QUERY = TagSpans.parse([1000, Tag.USER_QUERY])
SYSTEM = TagSpans.parse([1000, Tag.SYSTEM_PROMPT])
PINNED = TIERS - 1


@dataclass
class Block:
    block_id: int
    block_hash: Any = None


class World:
    """Eight blocks, each holding something of its own; half of them may be pinned."""

    def __init__(self, pin_share: float = 0.5) -> None:
        self.blocks = [Block(number, f"hash{number}") for number in range(8)]
        self.moved: list[int] = []
        self.retention = Retention(
            8, pin_share, self.blocks.__getitem__, lambda block: self.moved.append(block.block_id)
        )

    def note(self, program: str, spans: TagSpans, *numbers: int) -> None:
        self.retention.note(program, spans, [self.blocks[n] for n in numbers], 16)

    def tiers(self, *numbers: int) -> list[int]:
        return [self.retention.tier(self.blocks[n]) for n in numbers]


def test_a_block_that_is_shared_has_its_highest_tag():
    world = World()
    world.note("p", SYSTEM, 0)
    world.note("q", QUERY, 0, 1)
    assert world.tiers(0, 1, 2) == [Tag.SYSTEM_PROMPT, Tag.USER_QUERY, 0]


def test_another_content_voids_what_was_known():
    world = World()
    world.note("p", SYSTEM, 0)
    world.retention.retain("p", 10.0)
    world.blocks[0].block_hash = "other"
    assert world.tiers(0) == [0]
    world.note("q", QUERY, 0)
    assert world.tiers(0) == [Tag.USER_QUERY]
    assert world.retention.violations() == []


def test_a_block_with_nothing_in_it_is_never_kept():
    world = World()
    world.blocks[0].block_hash = None
    world.note("p", SYSTEM, 0)
    assert world.tiers(0) == [0]


def test_priorities_move_a_program_by_tiers_and_stay_between_the_tags():
    world = World()
    world.note("p", QUERY, 0)
    world.retention.prioritise("p", 1)
    assert world.tiers(0) == [Tag.SYSTEM_PROMPT]
    assert 0 in world.moved
    world.retention.prioritise("p", 99)
    assert world.tiers(0) == [Tag.PARTIAL_PREFILL]
    world.retention.prioritise("p", -99)
    assert world.tiers(0) == [Tag.RESPONSE]
    # Blocks that come later have it too.
    world.note("p", QUERY, 1)
    world.retention.prioritise("p", -1)
    assert world.tiers(0, 1) == [Tag.TOOL_OUTPUT, Tag.TOOL_OUTPUT]


def test_a_pin_holds_until_its_time_is_over():
    world = World()
    world.note("p", QUERY, 0, 1)
    assert world.retention.retain("p", 10.0)
    assert world.tiers(0, 1) == [PINNED, PINNED]
    assert world.retention.expire(9.9) == []
    assert world.retention.expire(10.0) == ["p"]
    assert world.tiers(0, 1) == [Tag.USER_QUERY, Tag.USER_QUERY]
    assert world.retention.violations() == []


def test_a_pin_covers_what_its_program_frees_later():
    world = World()
    assert not world.retention.retain("p", 10.0)
    world.note("p", QUERY, 3)
    assert world.tiers(3) == [PINNED]


def test_a_pin_can_be_released():
    world = World()
    world.note("p", QUERY, 0)
    world.retention.retain("p", 10.0)
    assert world.retention.release("p")
    assert not world.retention.release("p")
    assert not world.retention.release("nobody")
    assert world.tiers(0) == [Tag.USER_QUERY]


def test_beyond_the_share_the_oldest_pin_yields():
    world = World()
    for name, numbers in (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5))):
        world.note(name, QUERY, *numbers)
        world.retention.retain(name, 100.0)
    assert world.tiers(0, 1) == [Tag.USER_QUERY, Tag.USER_QUERY]
    assert world.tiers(2, 3, 4, 5) == [PINNED] * 4
    assert world.retention.state()["pinned_blocks"] == 4


def test_a_program_larger_than_the_share_keeps_its_prefix():
    world = World()
    world.note("p", QUERY, *range(6))
    world.retention.retain("p", 100.0)
    assert world.tiers(*range(6)) == [PINNED] * 4 + [Tag.USER_QUERY] * 2


def test_the_state_counts_blocks_by_tag():
    world = World()
    world.note("p", SYSTEM, 0, 1)
    world.blocks[1].block_hash = None
    counts = world.retention.state()["blocks_by_tag"]
    assert counts["SYSTEM_PROMPT"] == 1
    assert sum(counts.values()) == 1


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["note", "retain", "release", "priority", "reuse", "expire", "reset"]),
        st.integers(0, 7),
        st.sampled_from("abc"),
        st.integers(-6, 6),
    ),
    max_size=50,
)


@given(EVENTS, st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_any_course_of_events_leaves_the_books_in_order(events, share):
    world = World(share)
    for now, (kind, number, program, amount) in enumerate(events):
        if kind == "note":
            world.note(program, SYSTEM if amount > 0 else QUERY, *range(number, min(8, number + 3)))
        elif kind == "retain":
            world.retention.retain(program, now + abs(amount))
        elif kind == "release":
            world.retention.release(program)
        elif kind == "priority":
            world.retention.prioritise(program, amount)
        elif kind == "reuse":
            world.blocks[number].block_hash = f"new{now}" if amount > 0 else None
        elif kind == "expire":
            world.retention.expire(float(now))
        else:
            world.retention.reset()
        assert world.retention.violations() == []
        assert all(0 <= tier < TIERS for tier in world.tiers(*range(8)))
