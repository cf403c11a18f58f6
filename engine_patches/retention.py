"""Which KV blocks are worth keeping: tags, reuse priorities, pins (Sutradhara 4.3). Pure.

Everything here only orders the reuse of free blocks. A pinned block is the last to be reused, and
can be reused: however much is pinned, a call never waits for a pin.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine_patches.tags import Tag, TagSpans

# Tier 0 holds what is empty or untagged, then one a tag, then the pinned.
TIERS: Final = len(Tag) + 1
_PINNED: Final = TIERS - 1
LOWEST_PRIORITY: Final = -4
HIGHEST_PRIORITY: Final = 4
# Programs that are remembered: so many, and no more blocks of theirs than four caches hold.
_KEPT_PROGRAMS: Final = 4096
_KEPT_CACHES: Final = 4


@dataclass(slots=True)
class _Mark:
    """What is known of a block's content. content: its hash; another one voids the mark."""

    content: Any
    tag: Tag
    priority: int = 0
    pin: str = ""


@dataclass(slots=True)
class _Known:
    """A program: its blocks, in the order of its context, and what was asked for it."""

    blocks: dict[int, Any] = field(default_factory=dict)
    priority: int = 0
    pinned_until: float | None = None
    # Why its last pin ended by itself, until its next call is told.
    ended: str = ""


class Retention:
    """Tags, priorities and pins of one engine's blocks.

    total: blocks in the cache. pin_share: at most so much of it is pinned; beyond that the oldest
    pin yields. block: a block by its id. retier: called for a block whose tier may have changed.
    """

    def __init__(
        self,
        total: int,
        pin_share: float,
        block: Callable[[int], Any],
        retier: Callable[[Any], None],
    ) -> None:
        self._total = total
        self._most_pinned = int(total * pin_share)
        self._block = block
        self._retier = retier
        self._marks: dict[int, _Mark] = {}
        self._programs: OrderedDict[str, _Known] = OrderedDict()
        self._pinned: dict[str, set[int]] = {}
        self._pinned_blocks = 0
        self._kept_blocks = 0

    # -- what the queue asks -----------------------------------------------------------------

    def tier(self, block: Any) -> int:
        """The tier of a block by its content."""
        mark = self._live(block)
        if mark is None:
            return 0
        if mark.pin:
            return _PINNED
        if mark.tag is Tag.NONE and not mark.priority:
            return 0
        return int(min(max(mark.tag + mark.priority, Tag.RESPONSE), Tag.PARTIAL_PREFILL))

    # -- what the scheduler tells ------------------------------------------------------------

    def note(self, program: str, spans: TagSpans, blocks: Sequence[Any], block_size: int) -> None:
        """A call of a program is about to give up these blocks, first to last of its context."""
        known = self._known(program)
        before = len(known.blocks)
        for block, tag in zip(blocks, spans.of_blocks(len(blocks), block_size), strict=True):
            if block.block_hash is None:
                continue
            mark = self._live(block)
            if mark is None:
                self._unpin(block.block_id)
                mark = self._marks[block.block_id] = _Mark(block.block_hash, tag)
            # Shared by several calls: the highest counts.
            mark.tag = max(mark.tag, tag)
            mark.priority = max(mark.priority, known.priority) if known.priority else mark.priority
            known.blocks[block.block_id] = block.block_hash
        self._kept_blocks += len(known.blocks) - before
        self._bound()
        if known.pinned_until is not None:
            self._pin(program, known)

    def retain(self, program: str, until: float) -> bool:
        """Pin a program's blocks, also those it is still to free. False if none is known yet."""
        known = self._known(program)
        known.pinned_until, known.ended = until, ""
        self._pin(program, known)
        return bool(known.blocks)

    def release(self, program: str) -> bool:
        """End a program's pin. False if it had none."""
        known = self._programs.get(program)
        if known is None or known.pinned_until is None:
            return False
        known.pinned_until = None
        for number in list(self._pinned.get(program, ())):
            self._unpin(number)
            self._move(number)
        self._pinned.pop(program, None)
        return True

    def prioritise(self, program: str, priority: int) -> bool:
        """Raise (above 0) or lower the tags of a program's blocks by so many tiers. False if no
        block of it is known yet; later ones will have it."""
        known = self._known(program)
        known.priority = min(max(priority, LOWEST_PRIORITY), HIGHEST_PRIORITY)
        for number in self._current(known):
            self._marks[number].priority = known.priority
            self._move(number)
        return bool(known.blocks)

    def expire(self, now: float) -> list[str]:
        """End the pins whose time is over. Their programs."""
        due = [p for p in self._pinned if (until := self._programs[p].pinned_until) is not None
               and until <= now]  # fmt: skip
        for program in due:
            self._end(program, "its time was over")
        return due

    def take_end(self, program: str) -> str:
        """Why the program's last pin ended by itself, told once; "" if it did not."""
        known = self._programs.get(program)
        if known is None:
            return ""
        ended, known.ended = known.ended, ""
        return ended

    def reset(self) -> None:
        """The cache was emptied: nothing is known any more."""
        marks = list(self._marks)
        self._marks.clear()
        self._programs.clear()
        self._pinned.clear()
        self._pinned_blocks = 0
        self._kept_blocks = 0
        for number in marks:
            self._move(number)

    # -- what people ask ---------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Counts for `GET /weft/state`; may be asked from another thread."""
        tags = dict.fromkeys(Tag, 0)
        for number, mark in list(self._marks.items()):
            if self._block(number).block_hash == mark.content:
                tags[mark.tag] += 1
        return {
            "blocks_by_tag": {tag.name: count for tag, count in tags.items()},
            "pins": len(self._pinned),
            "pinned_blocks": self._pinned_blocks,
            "pinned_blocks_limit": self._most_pinned,
        }

    def violations(self) -> list[str]:
        """What is inconsistent, in words."""
        found = []
        pinned = {number: program for program, ids in self._pinned.items() for number in ids}
        marked = {number: mark.pin for number, mark in self._marks.items() if mark.pin}
        if pinned != marked:
            found.append("pins and marks differ")
        if len(pinned) != self._pinned_blocks:
            found.append(f"{self._pinned_blocks} pinned blocks are counted, {len(pinned)} are")
        if self._pinned_blocks > self._most_pinned:
            found.append("more is pinned than may be")
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

    def _live(self, block: Any) -> _Mark | None:
        mark = self._marks.get(block.block_id)
        return mark if mark is not None and mark.content == block.block_hash else None

    def _current(self, known: _Known) -> list[int]:
        """Blocks of a program that still hold what they held; the others are forgotten."""
        for number, content in list(known.blocks.items()):
            mark = self._live(self._block(number))
            if mark is None or mark.content != content:
                del known.blocks[number]
                self._kept_blocks -= 1
        return list(known.blocks)

    def _pin(self, program: str, known: _Known) -> None:
        # A prefix is of use without what follows it, not the other way around.
        wanted = self._current(known)[: self._most_pinned]
        # The newest pin is the last to yield.
        ids = self._pinned.pop(program, set())
        self._pinned[program] = ids
        new = [number for number in wanted if not self._marks[number].pin]
        self._make_room(len(new), program)
        for number in new[: self._most_pinned - self._pinned_blocks]:
            self._marks[number].pin = program
            ids.add(number)
            self._pinned_blocks += 1
            self._move(number)
        if not ids:
            del self._pinned[program]

    def _make_room(self, wanted: int, program: str) -> None:
        self._drop_stale()
        for other in list(self._pinned):
            if self._pinned_blocks + wanted <= self._most_pinned:
                return
            if other != program:
                self._end(other, "another pin needed the room")

    def _end(self, program: str, reason: str) -> None:
        self.release(program)
        self._programs[program].ended = reason

    def _drop_stale(self) -> None:
        for number in [n for ids in self._pinned.values() for n in ids]:
            if self._live(self._block(number)) is None:
                self._unpin(number)
                del self._marks[number]

    def _unpin(self, number: int) -> None:
        mark = self._marks.get(number)
        if mark is not None and mark.pin:
            self._pinned[mark.pin].discard(number)
            mark.pin = ""
            self._pinned_blocks -= 1

    def _move(self, number: int) -> None:
        self._retier(self._block(number))
