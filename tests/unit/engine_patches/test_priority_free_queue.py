"""The tiered queue in the place of vLLM's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("vllm")

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock
from weft_engine.block_metadata import NOWHERE, PINNED, Home
from weft_engine.compat_kv import FreeBlocks
from weft_engine.priority_free_queue import PriorityFreeQueue

# Of those that there are, the model has these.
TIERS = 4
COUNT = 12


class World:
    """A queue, its blocks, and the same in plain lists."""

    def __init__(self) -> None:
        self.blocks = [KVCacheBlock(number) for number in range(COUNT)]
        self.tier = dict.fromkeys(range(COUNT), 0)
        self.reused: list[int] = []
        plain = FreeKVCacheBlockQueue(self.blocks)
        self.queue = PriorityFreeQueue(
            lambda: FreeBlocks([]),
            lambda blocks: [self.home(block.block_id) for block in blocks],
            lambda blocks: self.reused.extend(block.block_id for block in blocks),
            plain.get_all_free_blocks(),
        )
        self.model: list[list[int]] = [list(range(COUNT)), *([] for _ in range(TIERS - 1))]

    def home(self, number: int) -> Home:
        """Blocks of tier 0 hold nothing that is known."""
        tier = self.tier[number]
        return ("t", tier) if tier else NOWHERE

    @property
    def free(self) -> list[int]:
        return [number for tier in self.model for number in tier]

    def check(self) -> None:
        found = [block.block_id for block in self.queue.get_all_free_blocks()]
        assert found == self.free
        assert self.queue.num_free_blocks == len(found)
        after = [block.block_id for block in self.queue.iter_blocks_after(None)]
        assert after == found
        for number in found[:1] + found[-1:]:
            rest = self.queue.iter_blocks_after(self.blocks[number])
            assert [block.block_id for block in rest] == found[found.index(number) + 1 :]
        for block in self.blocks:
            block.ref_cnt = 0 if block.block_id in found else 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["pop", "pop_n", "remove", "remove_n", "append", "append_n", "prepend", "retier"]
        ),
        st.integers(0, COUNT - 1),
        st.integers(0, TIERS - 1),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_behaves_as_lists_in_order_whatever_comes(steps):
    world = World()
    for kind, number, tier in steps:
        free = world.free
        world.reused.clear()
        if kind == "pop" and free:
            assert world.queue.popleft().block_id == free[0]
            assert world.reused == free[:1]
            next(t for t in world.model if t).pop(0)
        elif kind == "pop_n" and number <= len(free):
            taken = [block.block_id for block in world.queue.popleft_n(number)]
            assert taken == world.reused == free[:number]
            world.model = [[b for b in t if b not in taken] for t in world.model]
        elif kind == "remove" and number in free:
            world.queue.remove(world.blocks[number])
            world.model = [[b for b in t if b != number] for t in world.model]
        elif kind == "remove_n":
            # A context's blocks, first to last, as far as they are free.
            taken = [n for n in range(number, COUNT) if n in free]
            world.queue.remove_n([world.blocks[n] for n in taken])
            world.model = [[b for b in t if b not in taken] for t in world.model]
        elif kind == "append_n":
            given = [n for n in reversed(range(number, COUNT)) if n not in free]
            world.tier.update((n, tier if n % 3 else 0) for n in given)
            world.queue.append_n([world.blocks[n] for n in given])
            for n in given:
                world.model[world.tier[n]].append(n)
        elif kind == "append" and number not in free:
            world.tier[number] = tier
            world.queue.append_n([world.blocks[number]])
            world.model[tier].append(number)
        elif kind == "prepend" and number not in free:
            world.tier[number] = 0
            world.queue.prepend_n([world.blocks[number]])
            world.model[0].insert(0, number)
        elif kind == "retier":
            several = [number, (number + 5) % COUNT, (number + 1) % COUNT]
            world.tier.update(dict.fromkeys(several, tier))
            world.queue.retier_n([world.blocks[n] for n in several])
            moved = [n for n in several if n in free and n not in world.model[tier]]
            world.model = [[b for b in t if b not in moved] for t in world.model]
            world.model[tier] += moved
        world.check()
        assert world.queue.violations(world.blocks) == []


def test_inconsistencies_are_found():
    world = World()
    world.check()
    world.tier[3] = 2
    assert "[3]" in world.queue.violations(world.blocks)[0]
    world.queue.retier_n([world.blocks[3]])
    assert world.queue.violations(world.blocks) == []
    world.blocks[5].ref_cnt = 1
    assert "unused" in world.queue.violations(world.blocks)[0]
    world.blocks[5].ref_cnt = 0
    world.queue.num_free_blocks += 1
    assert "are counted" in world.queue.violations(world.blocks)[0]


def test_an_empty_queue_and_a_block_that_is_not_free_are_refused():
    world = World()
    taken = world.queue.popleft_n(COUNT)
    with pytest.raises(ValueError, match="No free blocks"):
        world.queue.popleft()
    with pytest.raises(RuntimeError, match="invalid block"):
        world.queue.remove(taken[0])


class Tenants:
    """A queue of blocks that all are in use, and the homes that they will have."""

    def __init__(self, count: int, ages: float = float("inf"), grain: int = 1) -> None:
        self.blocks = [KVCacheBlock(number) for number in range(count)]
        self.homes: dict[int, Home] = {}
        self.weights: dict[str | None, float] = {}
        self.asked = 0
        self.queue = PriorityFreeQueue(
            lambda: FreeBlocks([]),
            lambda blocks: [self.homes[block.block_id] for block in blocks],
            lambda blocks: None,
            weight=self.weight,
            ages=ages,
            grain=grain,
        )

    def weight(self, tenant: str | None, clock: int) -> float:
        self.asked += 1
        return self.weights.get(tenant, 1.0)

    def free(self, tenant: str, tier: int, *numbers: int) -> None:
        self.homes.update(dict.fromkeys(numbers, (tenant, tier)))
        self.queue.append_n([self.blocks[number] for number in numbers])

    def take(self, count: int) -> list[int]:
        return [block.block_id for block in self.queue.popleft_n(count)]


def test_the_tenant_that_holds_most_gives_whatever_its_tiers_are():
    world = Tenants(10)
    world.free("honest", 1, 0, 1, 2)
    world.free("greedy", PINNED, 3, 4, 5, 6, 7)
    assert world.take(2) == [3, 4]
    # Now they hold the same, and give in turn.
    assert sorted(world.take(4)) == [0, 1, 5, 6]
    assert sorted(world.take(2)) == [2, 7]
    assert world.queue.num_free_blocks == 0


def test_a_tenant_may_hold_as_much_as_it_weighs():
    world = Tenants(10)
    world.weights = {"a": 3.0, "b": 1.0}
    world.free("a", 1, *range(6))
    world.free("b", 5, 6, 7, 8, 9)
    assert world.take(2) == [6, 7]
    assert 0 in world.take(3)


def test_many_tenants_are_not_all_looked_at_for_each_block():
    world = Tenants(640, grain=8)
    for tenant in range(64):
        world.free(f"t{tenant}", 1, *range(10 * tenant, 10 * tenant + 10))
    for _ in range(320):
        world.take(1)
    # Each choice asks each tenant, and the one that gives once more.
    assert world.asked <= 320 // 8 * 65
    left = [world.queue._lanes[tenant].count for tenant in world.queue._lanes]
    assert sum(left) == 320


def test_idle_tenants_give_before_active_ones():
    world = Tenants(6)
    world.weights = {"idle": 0.0}
    world.free("busy", 1, 0, 1, 2, 3)
    world.free("idle", 4, 4, 5)
    assert world.take(3) == [4, 5, 0]


def test_aged_blocks_are_reused_before_lower_tiers_unless_pinned():
    world = Tenants(12, ages=4)
    world.free("t", 4, 0, 1)
    world.free("t", PINNED, 2)
    world.free("t", 1, 3, 4, 5, 6)
    assert world.take(4) == [3, 4, 5, 6]
    world.free("t", 1, 7, 8, 9)
    assert world.take(1) == [7]
    world.free("t", 4, 10)
    assert world.take(2) == [0, 1]
    assert world.take(3) == [8, 9, 10]
    assert world.queue.reused == 10


@given(
    st.lists(st.tuples(st.integers(0, PINNED), st.integers(1, 6), st.integers(0, 9)), max_size=12),
    st.integers(0, 20),
)
def test_blocks_taken_together_are_those_taken_one_by_one(frees, ages):
    """Also where some of them age on the way."""
    together, single = Tenants(80, ages), Tenants(80, ages)
    number = 0
    for tier, count, takes in frees:
        for world in (together, single):
            world.free("t", tier, *range(number, number + count))
        number += count
        takes = min(takes, together.queue.num_free_blocks)
        one_by_one = [single.take(1)[0] for _ in range(takes)]
        assert together.take(takes) == one_by_one
