"""Eviction policy of KV blocks: tags, reuse priorities, pins (Sutradhara 4.3). Pure.

The policy only orders the reuse of free blocks. Pinned blocks are the last of their tenant to be
reused, and they can be reused: no call ever waits for a pin.

Neighbouring blocks with equal metadata are processed as one run, because the scheduler waits for
this code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import is_
from typing import Any, Final

from weft_engine.block_metadata import (
    AGES,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    NOWHERE,
    PINNED,
    BlockMeta,
    Home,
    block_meta,
    runs_of,
)
from weft_engine.cache_shares import CacheShares
from weft_engine.deadlines import Deadlines
from weft_engine.pins import EndedPin, Pins
from weft_engine.program_blocks import Program, ProgramBlocks
from weft_engine.tags import Tag, TagSpans

_NOBODY: Final[frozenset[str]] = frozenset()


class EvictionPolicy:
    """Tags, priorities and pins of one engine's blocks.

    total: blocks in the cache. pin_share: the fraction of the cache that may be pinned. Each tenant
    may pin its share among active tenants; beyond that, its oldest pin ends. block: returns a block
    by its id. retier: called with the blocks whose tiers may have changed, in their order of reuse.
    contents: returns the key of each block's content, None for a block that cannot be found; called
    for whole contexts. clock: returns the number of blocks reused so far.
    """

    def __init__(
        self,
        total: int,
        pin_share: float,
        block: Callable[[int], Any],
        retier: Callable[[Sequence[Any]], None],
        contents: Callable[[Sequence[Any]], list[Any]],
        clock: Callable[[], int] = lambda: 0,
    ) -> None:
        self._total = total
        self._block = block
        self._retier = retier
        self._contents = contents
        self._clock = clock
        # The metadata of blocks, and the content that it describes. Other content makes it invalid.
        self._meta: dict[int, BlockMeta] = {}
        self._noted: dict[int, Any] = {}
        # The position of each block's end in its context, in tokens. Valid with the content, as
        # above.
        self._ends: dict[int, int] = {}
        self._programs = ProgramBlocks(total)
        self.pins = Pins(int(total * pin_share), self._share)
        self.shares = CacheShares(AGES * total, self.pins.tenants)
        # The programs whose priority expires.
        self._priorities = Deadlines()

    # -- called by the queue -----------------------------------------------------------------

    def homes(self, blocks: Sequence[Any]) -> list[Home]:
        """Return the home of each block by its content."""
        numbers = [block.block_id for block in blocks]
        marks = self._live(numbers, self._contents(blocks))
        found = [NOWHERE if mark is None else mark.home for mark in marks]
        pinned = self.pins.blocks
        if not pinned.isdisjoint(numbers):
            for index, (number, mark) in enumerate(zip(numbers, marks, strict=True)):
                if number in pinned and mark is not None:
                    found[index] = (mark.tenant, PINNED)
        return found

    def reused(self, blocks: Iterable[Any]) -> None:
        """Free blocks were taken for other content: remove their metadata and pins."""
        forget, pinned = self._meta.pop, self.pins.blocks
        for block in blocks:
            number = block.block_id
            if forget(number, None) is not None and number in pinned:
                self.pins.drop(number)

    # -- called by the scheduler -------------------------------------------------------------

    def called(self, program: str, tenant: str, weight: float) -> None:
        """Record that a call of a program arrived. weight: the tenant's weight."""
        self.shares.seen(tenant, weight, self._clock())
        known = self._programs.get(program)
        if known is not None:
            known.tenant = tenant

    def note(
        self,
        program: str,
        spans: TagSpans,
        blocks: Sequence[Any],
        block_size: int,
        *,
        ended: bool = True,
        tenant: str = "",
    ) -> list[int]:
        """Record the metadata of blocks that a call is about to free, in the order of its context.
        ended: the call has finished; False: it was preempted. Returns the blocks that lookups can
        find again."""
        known = self._at_hand(program)
        known.tenant = tenant
        contents = self._contents(blocks)
        # The last block of a context is usually partial and has no hash.
        while contents and contents[-1] is None:
            contents.pop()
        numbers = [block.block_id for block in islice(blocks, len(contents))]
        tags = spans.of_blocks(len(numbers), block_size)
        marks = self._live(numbers, contents)
        if not all(marks):
            # Only blocks after the known ones are inspected one by one.
            first = marks.index(None)
            ours = map(self._block, numbers[first:])
            ends = list(
                range((first + 1) * block_size, (len(numbers) + 1) * block_size, block_size)
            )
            if None in contents or not all(map(is_, ours, islice(blocks, first, None))):
                # Blocks without a hash cannot be found again. Blocks of other pools are not ours.
                for at in range(len(numbers) - 1, first - 1, -1):
                    if contents[at] is None or self._block(numbers[at]) is not blocks[at]:
                        del numbers[at], contents[at], tags[at], marks[at], ends[at - first]
            self._begin(numbers[first:], contents[first:], marks[first:], ends)
        for (was, tag), begun, end in runs_of(zip(marks, tags, strict=True)):
            mark = self._remark(program, known, tag, was, ended)
            if mark is not was:
                self._meta.update(dict.fromkeys(numbers[begun:end], mark))
        self._programs.own(known, numbers, contents)
        self._bound()
        if program in self.pins:
            self._pin(program, numbers)
        return numbers

    def _begin(
        self,
        numbers: Sequence[int],
        contents: Sequence[Any],
        marks: Sequence[BlockMeta | None],
        ends: Sequence[int],
    ) -> None:
        """Record new content of the blocks that have no metadata. Equal content has equal ends."""
        if self.pins.blocks:
            fresh = {n for n, mark in zip(numbers, marks, strict=True) if mark is None}
            for number in self.pins.blocks & fresh:
                self.pins.drop(number)
        self._noted.update(zip(numbers, contents, strict=True))
        self._ends.update(zip(numbers, ends, strict=True))

    def _remark(
        self, program: str, known: Program, tag: Tag, was: BlockMeta | None, ended: bool
    ) -> BlockMeta:
        """Return the new metadata of blocks that a call of the program has used. was: their
        metadata before."""
        ahead = tag is Tag.PARTIAL_PREFILL
        if was is None:
            partial = frozenset((program,)) if ahead else _NOBODY
            highest = Tag.NONE if ahead else tag
            return block_meta(known.tenant, program, highest, known.standing, partial)
        _, owner, highest, priority, partial, _ = was
        if owner == program:
            priority = known.standing
        else:
            # Several programs share the block: the highest priority counts.
            owner, priority = "", max(priority, known.standing)
        if ahead:
            partial |= {program}
        else:
            highest = max(highest, tag)
            if ended and program in partial:
                # The call that the prefill was for has finished.
                partial -= {program}
        return block_meta(known.tenant, owner, highest, priority, partial)

    def retain(self, program: str, until: float, reach: int | None = None) -> None:
        """Pin a program's blocks, including those that it frees later. This replaces its previous
        pin. reach: pin only blocks that end within the first `reach` tokens of a context; a block
        across that limit is not pinned."""
        known = self._at_hand(program)
        known.ended, known.reach = "", reach
        self.pins.retain(program, until)
        if reach is not None:
            beyond = [n for n in self.pins.of(program) if self._ends[n] > reach]
            self._move(self.pins.loosen(program, beyond))
        self._pin(program, self._current(known))

    def reached(self, program: str, numbers: Sequence[int]) -> Sequence[int]:
        """Return those blocks of the program's context that its pin covers."""
        known = self._programs.get(program)
        reach = None if known is None else known.reach
        return numbers if reach is None else [n for n in numbers if self._ends[n] <= reach]

    def release(self, program: str) -> None:
        """End a program's pin and the protection of its prefilled blocks."""
        known = self._programs.get(program)
        if known is not None:
            self._release(program, self._current(known))

    def give_up(self, program: str) -> None:
        """End the protection of blocks that were prefilled ahead for a program: no call will use
        them."""
        known = self._programs.get(program)
        if known is not None:
            self._give_up(program, self._current(known))

    def forget(self, program: str) -> None:
        """Drop a program that has ended. Its pins end, and blocks that no other program has used
        become the first tagged blocks to be reused. A later program of that name starts anew."""
        known = self._programs.get(program)
        if known is not None:
            current = self._current(known)
            self._release(program, current)
            self._prioritise(program, LOWEST_PRIORITY, current)
            self._drop(program)

    def prioritise(self, program: str, priority: int, until: float | None = None) -> None:
        """Raise (above 0) or lower the tags of a program's blocks by this many tiers. The priority
        also applies to later blocks. Blocks shared with other programs are raised but never
        lowered. until: the time at which the priority ends; None: it is permanent."""
        known = self._at_hand(program)
        known.priority = min(max(priority, LOWEST_PRIORITY), HIGHEST_PRIORITY)
        if until is None:
            self._priorities.drop(program)
        else:
            self._priorities.set(program, until)
        self._prioritise(program, known.standing, self._current(known))

    def reside(self, program: str, resident: bool) -> None:
        """Make a program's blocks the last unpinned ones to be reused, or end that. Its priority
        stays, and counts while it is not resident."""
        if not resident and self._programs.get(program) is None:
            # It has ended.
            return
        known = self._at_hand(program)
        known.resident = resident
        self._prioritise(program, known.standing, self._current(known))

    def expire(self, now: float) -> None:
        """End expired pins and priorities. The engine does so itself, because the gateway that set
        them may be gone by then."""
        self._let_go(self.pins.expire(now), "its retention time has passed")
        for program in self._priorities.due(now):
            self.prioritise(program, 0)

    def take_end(self, program: str) -> str:
        """Return once why a program's last pin ended before it was released; "" if it did not."""
        known = self._programs.get(program)
        if known is None:
            return ""
        ended, known.ended = known.ended, ""
        return ended

    def sweep(self) -> None:
        """The cache may have been emptied: remove the metadata of blocks that lost their content.
        Settings of programs stay."""
        numbers, marks = self._known()
        gone = [number for number, mark in zip(numbers, marks, strict=True) if mark is None]
        self.reused(map(self._block, gone))
        self._move(gone)

    def reset(self) -> None:
        """The cache was emptied: remove all metadata."""
        marks = list(self._meta)
        self._meta.clear()
        self._noted.clear()
        self._ends.clear()
        self._programs.clear()
        self._priorities.clear()
        self.pins.clear()
        self._move(marks)

    # -- called by people --------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the counts for `GET /weft/state`. Safe to call from another thread."""
        tags = dict.fromkeys(Tag, 0)
        for mark, begun, end in runs_of(self._known()[1]):
            if mark is not None:
                tags[Tag.PARTIAL_PREFILL if mark.partial else mark.tag] += end - begun
        return {
            "blocks_by_tag": {tag.name: count for tag, count in tags.items()},
            "pins": len(self.pins),
            "pinned_blocks": len(self.pins.blocks),
            "pinned_blocks_limit": self.pins.limit,
            "pinned_blocks_by_tenant": self.pins.by_tenant(),
        }

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        found = self.pins.violations()
        if not self.pins.blocks <= self._meta.keys():
            found.append("a block is pinned of which nothing is known")
        return found + self._programs.violations()

    # -- inside ------------------------------------------------------------------------------

    def _bound(self) -> None:
        for program, ended in self._programs.overdue():
            if ended:
                self.forget(program)
            else:
                self.release(program)
                self._drop(program)

    def _drop(self, program: str) -> None:
        self._programs.forget(program)
        self._priorities.drop(program)

    def _at_hand(self, program: str) -> Program:
        known = self._programs.at_hand(program)
        self._bound()
        return known

    def _share(self, tenant: str) -> float:
        return self.shares.share(tenant, self._clock())

    def _known(self) -> tuple[list[int], list[BlockMeta | None]]:
        """Return all blocks with metadata, and the result of `_live` for them."""
        numbers = list(self._meta)
        return numbers, self._live(numbers, self._contents(list(map(self._block, numbers))))

    def _live(self, numbers: Sequence[int], contents: Sequence[Any]) -> list[BlockMeta | None]:
        """Return the metadata of each block; None if its content has changed."""
        marks = list(map(self._meta.get, numbers))
        noted = list(map(self._noted.get, numbers))
        if noted != contents:
            return [
                mark if was == content else None
                for mark, was, content in zip(marks, noted, contents, strict=True)
            ]
        return marks

    def _runs(self, numbers: Sequence[int]) -> list[tuple[BlockMeta, Sequence[int]]]:
        """Return the metadata of runs of blocks, with the blocks of each run."""
        runs = runs_of(map(self._meta.__getitem__, numbers))
        return [(mark, numbers[begun:end]) for mark, begun, end in runs]

    def _current(self, known: Program) -> list[int]:
        """Return the blocks of a program with unchanged content, and remove the others."""
        numbers, was = list(known.blocks), list(known.blocks.values())
        contents = self._contents(list(map(self._block, numbers)))
        marks = self._live(numbers, contents)
        if None not in marks and contents == was:
            return numbers
        found = zip(numbers, marks, contents, was, strict=True)
        gone = [n for n, mark, now, before in found if mark is None or now != before]
        self._programs.lose(known, gone)
        return list(known.blocks)

    def _release(self, program: str, current: Sequence[int]) -> None:
        self._give_up(program, current)
        self._move(self.pins.release(program))

    def _give_up(self, program: str, current: Sequence[int]) -> None:
        given: list[int] = []
        for mark, run in self._runs(current):
            if program in mark.partial:
                left = mark.partial - {program}
                new = block_meta(mark.tenant, mark.owner, mark.tag, mark.priority, left)
                self._meta.update(dict.fromkeys(run, new))
                given += run
        self._move(given)

    def _prioritise(self, program: str, priority: int, current: Sequence[int]) -> None:
        for mark, run in self._runs(current):
            new = priority if mark.owner == program else max(mark.priority, priority)
            if new != mark.priority:
                changed = block_meta(mark.tenant, mark.owner, mark.tag, new, mark.partial)
                self._meta.update(dict.fromkeys(run, changed))
        self._move(current)

    def _pin(self, program: str, blocks: Sequence[int]) -> None:
        wanted = self.reached(program, blocks)
        added, yielded = self.pins.extend(program, wanted, self._programs.at_hand(program).tenant)
        self._let_go(yielded, "another pin took its place")
        self._move(added)

    def _let_go(self, pins: Sequence[EndedPin], why: str) -> None:
        for pin in pins:
            known = self._programs.get(pin.program)
            if known is not None:
                known.ended = why
            self._move(pin.blocks)

    def _move(self, numbers: Sequence[int]) -> None:
        """Move blocks of a context to their tiers, the deepest to be reused first: a block is
        useful without those after it, but not without those before it."""
        self._retier(list(map(self._block, reversed(numbers))))
