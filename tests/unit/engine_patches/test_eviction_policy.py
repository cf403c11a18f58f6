"""Effects of tags, priorities and pins on tiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from weft_engine import program_blocks
from weft_engine.block_metadata import TIERS
from weft_engine.eviction_policy import EvictionPolicy
from weft_engine.tags import Tag, TagSpans

QUERY = TagSpans.parse([1000, Tag.USER_QUERY])
SYSTEM = TagSpans.parse([1000, Tag.SYSTEM_PROMPT])
PARTIAL = TagSpans.parse([1000, Tag.PARTIAL_PREFILL])
MIXED = TagSpans.parse([20, Tag.SYSTEM_PROMPT, 40, Tag.TOOL_OUTPUT, 1000, Tag.USER_QUERY])
PINNED = TIERS - 1


@dataclass
class Block:
    block_id: int
    block_hash: Any = None


class World:
    """A cache of `count` blocks, each with different content; half of them may be pinned."""

    def __init__(self, pin_share: float = 0.5, count: int = 8) -> None:
        self.blocks = [Block(number, f"hash{number}") for number in range(count)]
        self.moved: list[int] = []
        self.policy = EvictionPolicy(
            count,
            pin_share,
            self.blocks.__getitem__,
            self._move,
            lambda blocks: [block.block_hash for block in blocks],
        )

    def _move(self, blocks: Sequence[Block]) -> None:
        self.moved += [block.block_id for block in blocks]

    def note(
        self, program: str, spans: TagSpans, *numbers: int, ended: bool = True, tenant: str = ""
    ) -> list[int]:
        blocks = [self.blocks[n] for n in numbers]
        return self.policy.note(program, spans, blocks, 16, ended=ended, tenant=tenant)

    def tiers(self, *numbers: int) -> list[int]:
        return [tier for _, tier in self.policy.homes([self.blocks[n] for n in numbers])]


def test_a_block_that_is_shared_has_its_highest_tag():
    world = World()
    world.note("p", SYSTEM, 0)
    world.note("q", QUERY, 0, 1)
    assert world.tiers(0, 1, 2) == [Tag.SYSTEM_PROMPT, Tag.USER_QUERY, 0]


def test_new_content_invalidates_metadata():
    world = World()
    world.note("p", SYSTEM, 0)
    world.policy.retain("p", 10.0)
    world.blocks[0].block_hash = "other"
    assert world.tiers(0) == [0]
    world.note("q", QUERY, 0)
    assert world.tiers(0) == [Tag.USER_QUERY]
    assert world.policy.violations() == []


def test_a_block_with_nothing_in_it_is_never_kept():
    world = World()
    world.blocks[0].block_hash = None
    world.note("p", SYSTEM, 0)
    assert world.tiers(0) == [0]


def test_priorities_move_a_program_by_tiers_and_stay_between_the_tags():
    world = World()
    world.note("p", QUERY, 0)
    world.policy.prioritise("p", 1)
    assert world.tiers(0) == [Tag.SYSTEM_PROMPT]
    assert 0 in world.moved
    world.policy.prioritise("p", 99)
    assert world.tiers(0) == [Tag.PARTIAL_PREFILL]
    world.policy.prioritise("p", -99)
    assert world.tiers(0) == [Tag.RESPONSE]
    # Later blocks have it too.
    world.note("p", QUERY, 1)
    assert world.tiers(0, 1) == [Tag.RESPONSE, Tag.RESPONSE]
    world.policy.prioritise("p", -1)
    assert world.tiers(0, 1) == [Tag.TOOL_OUTPUT, Tag.TOOL_OUTPUT]


def test_a_priority_ends_at_its_time_unless_it_is_renewed_or_its_program_ends():
    world = World()
    for number, program in enumerate("pqr"):
        world.note(program, QUERY, number)
        world.policy.prioritise(program, 1, until=10.0)
    world.policy.prioritise("q", 1)
    world.policy.forget("r")
    world.policy.expire(10.0)
    assert world.tiers(0, 1, 2) == [Tag.USER_QUERY, Tag.SYSTEM_PROMPT, Tag.RESPONSE]


def test_the_untagged_stay_last_when_they_are_lowered_and_can_be_raised():
    world = World()
    world.policy.prioritise("p", -2)
    world.note("p", TagSpans(), 0)
    assert world.tiers(0) == [0]
    world.policy.prioritise("p", 2)
    assert world.tiers(0) == [Tag.TOOL_OUTPUT]


def test_no_program_lowers_shared_blocks():
    world = World()
    world.note("p", SYSTEM, 0, 1)
    world.note("q", SYSTEM, 0)
    world.policy.prioritise("p", -4)
    assert world.tiers(0, 1) == [Tag.SYSTEM_PROMPT, Tag.RESPONSE]
    world.policy.prioritise("q", 1)
    assert world.tiers(0, 1) == [Tag.PARTIAL_PREFILL, Tag.RESPONSE]
    # Another program that shares lowered blocks raises them.
    world.note("q", SYSTEM, 1)
    assert world.tiers(1) == [Tag.PARTIAL_PREFILL]


def test_a_partial_prefill_is_kept_until_its_call_has_ended():
    """Sutradhara 4.3: maximum priority until its extension prompt is completed."""
    world = World()
    world.note("p", PARTIAL, 0, 1)
    world.note("q", QUERY, 0)
    assert world.tiers(0, 1) == [Tag.PARTIAL_PREFILL] * 2
    world.note("p", QUERY, 0, 1, 2, ended=False)
    assert world.tiers(0, 1, 2) == [Tag.PARTIAL_PREFILL, Tag.PARTIAL_PREFILL, Tag.USER_QUERY]
    world.note("p", QUERY, 0, 1, 2)
    assert world.tiers(0, 1, 2) == [Tag.USER_QUERY] * 3


def test_a_partial_prefill_that_is_given_up_is_released():
    world = World()
    world.note("p", PARTIAL, 0)
    world.note("q", PARTIAL, 0)
    world.policy.release("p")
    assert world.tiers(0) == [Tag.PARTIAL_PREFILL]
    world.moved.clear()
    world.policy.release("q")
    assert world.tiers(0) == [0]
    assert world.moved == [0]


def test_a_pin_holds_until_its_time_is_over():
    world = World()
    world.note("p", QUERY, 0, 1)
    world.policy.retain("p", 10.0)
    world.policy.expire(9.9)
    assert world.tiers(0, 1) == [PINNED, PINNED]
    world.policy.expire(10.0)
    assert world.tiers(0, 1) == [Tag.USER_QUERY, Tag.USER_QUERY]
    assert world.policy.violations() == []


def test_untagged_blocks_can_be_pinned():
    world = World()
    world.note("p", TagSpans(), 0)
    world.policy.retain("p", 10.0)
    assert world.tiers(0, 1) == [PINNED, 0]


def test_a_pin_of_the_first_tokens_excludes_later_blocks():
    world = World(pin_share=1.0)
    world.note("p", QUERY, 0, 1, 2)
    world.policy.retain("p", 10.0, reach=40)
    assert world.tiers(0, 1, 2) == [PINNED, PINNED, Tag.USER_QUERY]
    # Another call of the program, with the same prefix and a different end.
    world.note("p", QUERY, 0, 3, 4)
    assert world.tiers(0, 3, 4) == [PINNED, PINNED, Tag.USER_QUERY]
    world.policy.retain("p", 10.0, reach=15)
    assert world.policy.state()["pinned_blocks"] == 0
    assert world.tiers(0, 1) == [Tag.USER_QUERY] * 2
    world.policy.retain("p", 10.0)
    assert world.tiers(*range(5)) == [PINNED] * 5
    assert world.policy.violations() == []


def test_a_narrower_pin_releases_the_end_first_and_no_shared_blocks():
    world = World(pin_share=1.0)
    for program in ("p", "q"):
        world.note(program, QUERY, 0, 1, 2, 3)
    world.policy.retain("p", 10.0)
    world.policy.retain("q", 10.0, reach=48)
    world.moved.clear()
    world.policy.retain("p", 10.0, reach=16)
    assert world.moved == [3]
    assert world.tiers(0, 1, 2, 3) == [PINNED] * 3 + [Tag.USER_QUERY]


def test_the_end_of_a_pin_is_reported_once_unless_it_was_released():
    world = World()
    for program, numbers in (("old", (0, 1, 2)), ("new", (3, 4)), ("short", (5,))):
        world.note(program, QUERY, *numbers)
        world.policy.retain(program, 10.0 if program == "short" else 100.0)
    assert world.policy.take_end("old") == "another pin took its place"
    assert world.policy.take_end("old") == ""
    world.policy.expire(10.0)
    assert world.policy.take_end("short") == "its retention time has passed"
    world.policy.release("new")
    assert world.policy.take_end("new") == ""
    assert world.policy.take_end("nobody") == ""


def test_a_shared_block_stays_pinned_until_both_programs_release_it():
    world = World()
    world.note("p", SYSTEM, 0, 1)
    world.note("q", SYSTEM, 0)
    world.policy.retain("p", 10.0)
    world.policy.retain("q", 20.0)
    world.policy.expire(10.0)
    assert world.tiers(0, 1) == [PINNED, Tag.SYSTEM_PROMPT]


def test_blocks_are_moved_the_deepest_first():
    """A block is useless without those before it, so the end of a context must be reused first."""
    world = World()
    world.note("p", QUERY, 5, 2, 7)
    world.policy.retain("p", 10.0)
    world.policy.prioritise("p", 1)
    world.policy.release("p")
    assert world.moved == [7, 2, 5] * 3


def test_a_block_that_comes_again_at_the_end_of_a_context_counts_as_its_end():
    world = World()
    world.note("p", QUERY, 5, 2)
    world.blocks[5].block_hash = "later"
    world.note("p", QUERY, 2, 5)
    world.policy.retain("p", 10.0)
    assert world.moved == [5, 2]


def test_reused_blocks_are_not_pinned_or_counted():
    world = World()
    world.note("p", QUERY, 0, 1)
    world.policy.retain("p", 10.0)
    world.policy.reused([world.blocks[0], world.blocks[7]])
    state = world.policy.state()
    assert state["pinned_blocks"] == state["blocks_by_tag"]["USER_QUERY"] == 1
    assert world.tiers(0) == [0]


def test_an_emptied_cache_is_noticed_and_settings_stay():
    world = World()
    world.policy.retain("p", 10.0)
    world.policy.prioritise("p", 1)
    world.note("p", QUERY, 0, 1)
    world.blocks[0].block_hash = None
    world.moved.clear()
    world.policy.sweep()
    assert world.moved == [0]
    assert world.tiers(0, 1) == [0, PINNED]
    world.note("p", QUERY, 2)
    assert world.tiers(2) == [PINNED]
    world.policy.release("p")
    assert world.tiers(2) == [Tag.SYSTEM_PROMPT]


def test_a_block_of_another_pool_is_none_of_ours():
    world = World()
    stranger = Block(3, "hash3")
    assert world.policy.note("p", SYSTEM, [stranger, world.blocks[1]], 16) == [1]
    assert world.tiers(1, 3) == [Tag.SYSTEM_PROMPT, 0]


def test_a_pin_covers_what_its_program_frees_later():
    world = World()
    world.policy.retain("p", 10.0)
    world.note("p", QUERY, 3)
    assert world.tiers(3) == [PINNED]


def test_a_pin_can_be_released():
    world = World()
    world.note("p", QUERY, 0)
    world.policy.retain("p", 10.0)
    world.policy.release("p")
    world.policy.release("unknown")
    assert world.tiers(0) == [Tag.USER_QUERY]


def test_beyond_the_share_the_oldest_pin_yields():
    world = World()
    for name, numbers in (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5))):
        world.note(name, QUERY, *numbers)
        world.policy.retain(name, 100.0)
    assert world.tiers(0, 1) == [Tag.USER_QUERY, Tag.USER_QUERY]
    assert world.tiers(2, 3, 4, 5) == [PINNED] * 4
    assert world.policy.state()["pinned_blocks"] == 4


def test_a_program_larger_than_the_share_keeps_its_prefix():
    world = World()
    world.note("p", QUERY, *range(6))
    world.policy.retain("p", 100.0)
    assert world.tiers(*range(6)) == [PINNED] * 4 + [Tag.USER_QUERY] * 2


def test_the_state_counts_blocks_by_tag():
    world = World()
    world.note("p", SYSTEM, 0, 1)
    world.blocks[1].block_hash = None
    counts = world.policy.state()["blocks_by_tag"]
    assert counts["SYSTEM_PROMPT"] == 1
    assert sum(counts.values()) == 1


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["note", "retain", "release", "priority", "reuse", "sweep", "expire", "reset"]
        ),
        st.integers(0, 7),
        st.sampled_from("abc"),
        st.integers(-6, 6),
    ),
    max_size=50,
)


def happen(world: World, now: int, event: tuple[str, int, str, int]) -> Any:
    kind, number, program, amount = event
    if kind == "note":
        spans = (QUERY, SYSTEM, PARTIAL, TagSpans(), MIXED)[amount % 5]
        # Contexts of a program begin alike, or somewhere.
        first = 0 if number > 2 else number
        return world.note(program, spans, *range(first, min(8, number + 3)), ended=amount > -4)
    if kind == "retain":
        reach = None if amount > 3 else 8 * abs(amount)
        return world.policy.retain(program, now + abs(amount), reach)
    if kind == "release":
        return world.policy.release(program)
    if kind == "priority":
        return world.policy.prioritise(program, amount)
    if kind == "reuse":
        # Or the same is computed into it again.
        if amount < 5:
            world.blocks[number].block_hash = f"new{now}" if amount > 0 else None
        return world.policy.reused([world.blocks[number]]) if amount % 2 else None
    if kind == "sweep":
        return world.policy.sweep()
    if kind == "expire":
        return world.policy.expire(float(now))
    return world.policy.reset()


SHARES = st.sampled_from([0.0, 0.3, 0.5, 1.0])


@given(EVENTS, SHARES)
def test_any_sequence_of_events_keeps_the_state_consistent(events, share):
    world = World(share)
    for now, event in enumerate(events):
        happen(world, now, event)
        assert world.policy.violations() == []
        assert all(0 <= tier < TIERS for tier in world.tiers(*range(8)))


def test_blocks_of_an_ended_program_are_evicted_first_and_its_name_starts_anew():
    world = World()
    world.note("p", SYSTEM, 0, 1)
    world.note("q", SYSTEM, 0)
    world.policy.retain("p", 10.0)
    world.policy.forget("p")
    assert world.tiers(0, 1) == [Tag.SYSTEM_PROMPT, Tag.RESPONSE]
    world.note("p", QUERY, 2)
    assert world.tiers(2) == [Tag.USER_QUERY]
    assert world.policy.violations() == []


def test_a_program_dropped_at_the_limit_leaves_no_raised_blocks(monkeypatch):
    """No command reports its end, and still its system prompt does not outlive it."""
    monkeypatch.setattr(program_blocks, "KEPT_PROGRAMS", 2)
    world = World()
    world.note("dead", SYSTEM, 0, 1)
    world.note("p", SYSTEM, 2)
    assert world.tiers(0, 1, 2) == [Tag.SYSTEM_PROMPT] * 3
    world.note("q", SYSTEM, 3)
    assert world.tiers(0, 1, 2, 3) == [Tag.RESPONSE] * 2 + [Tag.SYSTEM_PROMPT] * 2
    assert world.policy.violations() == []


def test_blocks_live_with_the_tenant_of_their_last_call():
    world = World()
    world.note("p", QUERY, 0, 1, tenant="a")
    world.note("q", SYSTEM, 1, 2, tenant="b")
    world.policy.retain("q", 10.0)
    homes = world.policy.homes(world.blocks[:4])
    assert homes == [("a", Tag.USER_QUERY), ("b", PINNED), ("b", PINNED), (None, 0)]
