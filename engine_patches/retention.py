"""Which KV blocks are worth keeping: tags, reuse priorities, pins (Sutradhara 4.3). Pure.

Everything here only orders the reuse of free blocks. A pinned block is the last to be reused, and
can be reused: however much is pinned, a call never waits for a pin.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine_patches.marks import HIGHEST_PRIORITY, LOWEST_PRIORITY, PINNED, Left, Mark, marked
from engine_patches.pins import EndedPin, Pins
from engine_patches.tags import Tag, TagSpans

# Programs that are remembered: so many, and no more blocks of theirs than four caches hold.
_KEPT_PROGRAMS: Final = 4096
_KEPT_CACHES: Final = 4
_NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class _Known:
    """A program: its blocks, in the order of its context, and what was asked for it. left: what its
    last call left, for each group of layers. reach: its pin is for so many of a context's first
    tokens, None for all. ended: why its last pin ended, until somebody is told."""

    blocks: dict[int, Any] = field(default_factory=dict)
    left: dict[int, Left] = field(default_factory=dict)
    priority: int = 0
    reach: int | None = None
    ended: str = ""


class Retention:
    """Tags, priorities and pins of one engine's blocks.

    total: blocks in the cache. pin_share: at most so much of it is pinned; beyond that the oldest
    pin yields. block: a block by its id. retier: called for blocks whose tiers may have changed, in
    the order in which they are to be reused. contents: what identifies the content of each block,
    None where it cannot be found; asked for whole contexts.
    """

    def __init__(
        self,
        total: int,
        pin_share: float,
        block: Callable[[int], Any],
        retier: Callable[[Sequence[Any]], None],
        contents: Callable[[Sequence[Any]], list[Any]],
    ) -> None:
        self._total = total
        self._block = block
        self._retier = retier
        self._contents = contents
        self._marks: dict[int, Mark] = {}
        # Where each marked block ends in its context, tokens. What it holds stands for that, too.
        self._ends = [0] * total
        self._programs: OrderedDict[str, _Known] = OrderedDict()
        self._kept_blocks = 0
        self.pins = Pins(int(total * pin_share))

    # -- what the queue asks -----------------------------------------------------------------

    def tiers(self, blocks: Sequence[Any]) -> list[int]:
        """The tier of each block by its content."""
        numbers = [block.block_id for block in blocks]
        marks = list(map(self._marks.get, numbers))
        contents = self._contents(blocks)
        found = [
            mark.tier if mark is not None and mark.content == content else 0
            for mark, content in zip(marks, contents, strict=True)
        ]
        pinned = self.pins.blocks
        if pinned:
            for index, (number, mark) in enumerate(zip(numbers, marks, strict=True)):
                if number in pinned and mark and mark.content == contents[index]:
                    found[index] = PINNED
        return found

    def reused(self, blocks: Iterable[Any]) -> None:
        """Free blocks were taken for something else: what was known of them, and pins, end."""
        forget, pinned = self._marks.pop, self.pins.blocks
        for block in blocks:
            number = block.block_id
            if forget(number, None) is not None and number in pinned:
                self.pins.drop(number)

    # -- what the scheduler tells ------------------------------------------------------------

    def note(
        self,
        program: str,
        spans: TagSpans,
        blocks: Sequence[Any],
        block_size: int,
        *,
        ended: bool = True,
        group: int = 0,
    ) -> list[int]:
        """A call of a program is about to give up these blocks, first to last of its context.
        ended: for good; False: it was displaced. group: of layers, whose blocks they are. Returns
        those that can be found again."""
        known = self._known(program)
        before = len(known.blocks)
        left = known.left.setdefault(group, Left())
        numbers = [block.block_id for block in blocks]
        contents = self._contents(blocks)
        tags = spans.of_blocks(len(blocks), block_size)
        marks = list(map(self._marks.get, numbers))
        same = left.alike(numbers, contents, tags, marks)
        left.keep(same)
        noted = numbers[:same]
        fresh = []
        pinned, mine = self.pins.blocks, frozenset((program,))
        end = same * block_size
        for number, content, tag, was, block in zip(
            numbers[same:], contents[same:], tags[same:], marks[same:], blocks[same:], strict=True
        ):
            end += block_size
            # What is not hashed nobody can find; and another pool's block is none of ours.
            if content is None or self._block(number) is not block:
                continue
            if was is None or was.content != content:
                if number in pinned:
                    self.pins.drop(number)
                self._ends[number] = end
                ahead = tag is Tag.PARTIAL_PREFILL
                highest, partial = (Tag.NONE, mine) if ahead else (tag, _NOBODY)
                mark = marked(content, program, highest, known.priority, partial)
            else:
                mark = self._remark(program, known.priority, tag, was, ended)
            fresh.append(mark)
            if mark is not was:
                self._marks[number] = mark
            if known.blocks.get(number) != content:
                known.blocks.pop(number, None)
                known.blocks[number] = content
            noted.append(number)
        # Blocks at the end of a context may be passed over, and what is prefilled ahead will be
        # noted otherwise when its call has come.
        if noted == numbers[: len(noted)] and not any(mark.partial for mark in fresh):
            left.extend(noted[same:], contents[same : len(noted)], tags[same : len(noted)], fresh)
        self._kept_blocks += len(known.blocks) - before
        self._bound()
        if program in self.pins:
            self._pin(program, noted)
        return noted

    def _remark(self, program: str, priority: int, tag: Tag, was: Mark, ended: bool) -> Mark:
        """The mark of a block that had one when a call of a program has used it."""
        content, owner, highest, others, partial, _ = was
        if owner != program:
            # Shared by several programs: the highest counts.
            owner, priority = "", max(others, priority)
        if tag is Tag.PARTIAL_PREFILL:
            partial |= {program}
        else:
            highest = max(highest, tag)
            if ended and program in partial:
                # The call that the prefill was for has come and gone.
                partial -= {program}
        return marked(content, owner, highest, priority, partial)

    def retain(self, program: str, until: float, reach: int | None = None) -> bool:
        """Pin a program's blocks, also those it is still to free; in the place of its pin before.
        reach: only blocks that end within so many of a context's first tokens; one that the limit
        cuts is not pinned. False if no such block is known yet."""
        known = self._known(program)
        known.ended, known.reach = "", reach
        self.pins.retain(program, until)
        if reach is not None:
            beyond = [n for n in self.pins.of(program) if self._ends[n] > reach]
            self._move(self.pins.loosen(program, beyond))
        current = self._current(known)
        self._pin(program, current)
        return bool(self.reached(program, current))

    def reached(self, program: str, numbers: Sequence[int]) -> Sequence[int]:
        """Those of these blocks, of a program's context, that its pin is for."""
        reach = self._programs[program].reach
        return numbers if reach is None else [n for n in numbers if self._ends[n] <= reach]

    def release(self, program: str) -> bool:
        """End a program's pin, and what was prefilled ahead for it. False if it had neither."""
        known = self._programs.get(program)
        return known is not None and self._release(program, self._current(known))

    def give_up(self, program: str) -> bool:
        """Nobody will use what was prefilled ahead for a program. False if nothing was."""
        known = self._programs.get(program)
        return known is not None and self._give_up(program, self._current(known))

    def forget(self, program: str) -> bool:
        """The program has ended: its pins end, and what nobody else has used goes before all else
        that is tagged. Another program of that name begins anew. False if it was not known."""
        known = self._programs.pop(program, None)
        if known is None:
            return False
        current = self._current(known)
        self._release(program, current)
        self._prioritise(program, LOWEST_PRIORITY, current)
        self._kept_blocks -= len(known.blocks)
        return True

    def prioritise(self, program: str, priority: int) -> bool:
        """Raise (above 0) or lower the tags of a program's blocks by so many tiers. False if no
        block of it is known yet; later ones will have it. What it shares with other programs is
        raised, but not lowered."""
        known = self._known(program)
        known.priority = min(max(priority, LOWEST_PRIORITY), HIGHEST_PRIORITY)
        current = self._current(known)
        self._prioritise(program, known.priority, current)
        return bool(current)

    def expire(self, now: float) -> list[str]:
        """End the pins whose time is over. Their programs."""
        ended = self.pins.expire(now)
        self._let_go(ended, "its time was over")
        return [pin.program for pin in ended]

    def take_end(self, program: str) -> str:
        """Why a program's last pin ended before it was released; told once. "" if it did not."""
        known = self._programs.get(program)
        if known is None:
            return ""
        ended, known.ended = known.ended, ""
        return ended

    def sweep(self) -> None:
        """The cache may have been emptied: forget what blocks no longer hold, keep what was asked
        for programs."""
        gone = [number for number in self._marks if self._live(self._block(number)) is None]
        self.reused(map(self._block, gone))
        self._move(gone)

    def reset(self) -> None:
        """The cache was emptied: nothing is known any more."""
        marks = list(self._marks)
        self._marks.clear()
        self._programs.clear()
        self.pins.clear()
        self._kept_blocks = 0
        self._move(marks)

    # -- what people ask ---------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Counts for `GET /weft/state`; may be asked from another thread."""
        tags = dict.fromkeys(Tag, 0)
        for number, mark in list(self._marks.items()):
            if self._block(number).block_hash == mark.content:
                tags[Tag.PARTIAL_PREFILL if mark.partial else mark.tag] += 1
        return {
            "blocks_by_tag": {tag.name: count for tag, count in tags.items()},
            "pins": len(self.pins),
            "pinned_blocks": len(self.pins.blocks),
            "pinned_blocks_limit": self.pins.limit,
        }

    def violations(self) -> list[str]:
        """What is inconsistent, in words."""
        found = self.pins.violations()
        if not self.pins.blocks <= self._marks.keys():
            found.append("a block is pinned of which nothing is known")
        if self._kept_blocks != sum(len(known.blocks) for known in self._programs.values()):
            found.append("blocks of programs are miscounted")
        return found

    # -- inside ------------------------------------------------------------------------------

    def _known(self, program: str) -> _Known:
        known = self._programs.get(program)
        if known is None:
            known = self._programs[program] = _Known()
        self._programs.move_to_end(program)
        self._bound()
        return known

    def _bound(self) -> None:
        """Forget the programs that were idle longest, never the one at hand."""
        while len(self._programs) > 1 and (
            len(self._programs) > _KEPT_PROGRAMS or self._kept_blocks > _KEPT_CACHES * self._total
        ):
            oldest = next(iter(self._programs))
            self.release(oldest)
            self._kept_blocks -= len(self._programs.pop(oldest).blocks)

    def _live(self, block: Any) -> Mark | None:
        mark = self._marks.get(block.block_id)
        return mark if mark is not None and mark.content == block.block_hash else None

    def _current(self, known: _Known) -> list[int]:
        """Blocks of a program that still hold what they held; the others are forgotten."""
        marks = map(self._marks.get, known.blocks)
        contents = self._contents(list(map(self._block, known.blocks)))
        gone = [
            number
            for (number, was), mark, content in zip(
                known.blocks.items(), marks, contents, strict=True
            )
            if mark is None or mark.content != was or content != was
        ]
        for number in gone:
            del known.blocks[number]
        if gone:
            known.left.clear()
            self._kept_blocks -= len(gone)
        return list(known.blocks)

    def _release(self, program: str, current: Sequence[int]) -> bool:
        partial = self._give_up(program, current)
        pinned = program in self.pins
        self._move(self.pins.release(program))
        return pinned or partial

    def _give_up(self, program: str, current: Sequence[int]) -> bool:
        partial = [n for n in current if program in self._marks[n].partial]
        for number in partial:
            content, owner, tag, priority, ahead, _ = self._marks[number]
            self._marks[number] = marked(content, owner, tag, priority, ahead - {program})
        self._move(partial)
        return bool(partial)

    def _prioritise(self, program: str, priority: int, current: Sequence[int]) -> None:
        for number in current:
            content, owner, tag, was, partial, _ = self._marks[number]
            new = priority if owner == program else max(was, priority)
            if new != was:
                self._marks[number] = marked(content, owner, tag, new, partial)
        self._move(current)

    def _pin(self, program: str, blocks: Sequence[int]) -> None:
        added, yielded = self.pins.extend(program, self.reached(program, blocks))
        self._let_go(yielded, "another pin needed the room")
        self._move(added)

    def _let_go(self, pins: Sequence[EndedPin], why: str) -> None:
        for pin in pins:
            self._programs[pin.program].ended = why
            self._move(pin.blocks)

    def _move(self, numbers: Sequence[int]) -> None:
        """Put blocks of a context into their tiers, the deepest to be reused first: what comes
        before a block is of use without it, what comes after it is not."""
        self._retier(list(map(self._block, reversed(numbers))))
