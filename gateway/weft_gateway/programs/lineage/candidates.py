"""Finds the marks on a call's chain, from its end to its beginning. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from weft_gateway.programs.lineage.fingerprint import Fingerprint
from weft_gateway.programs.lineage.marks import Known, Mark, State

# The last messages of a call, whose marks are looked up before all others.
NEAR: Final = 16


class Candidate(NamedTuple):
    """A mark on the call's chain. fingerprint: the mark's position. point: index of the chain
    point, the number of messages before it minus one. whole: the mark is at the very end of the
    call. answered: the next message is the model's.
    """

    mark: Mark
    fingerprint: int
    point: int
    whole: bool
    answered: bool

    @property
    def place(self) -> tuple[int, int]:
        """The position on the chain, for comparison."""
        return self.point, self.mark.length


def candidates_of(prompt: Fingerprint, known: Known) -> Iterator[Candidate]:
    """Yield marks from the call's end to its beginning."""
    marks = known.marks
    last = len(prompt.points) - 1
    # A long chain has marks near its end, nearly always.
    far = len(prompt.points) - NEAR
    first = far if far > 0 and marks.keys().isdisjoint(prompt.points[:far]) else 0
    for point in range(last, first - 1, -1):
        fingerprint = prompt.points[point]
        here = marks.get(fingerprint)
        if here is not None:
            answered = prompt.answers_at(point)
            for mark in here:
                if not mark.tail:
                    whole = point == last and not mark.state & State.ANSWER
                    yield Candidate(mark, fingerprint, point, whole, answered)
        if point == last and not prompt.cuts.keys().isdisjoint(marks):
            yield from _inside(prompt, marks, last)


def _inside(
    prompt: Fingerprint, marks: Mapping[int, Sequence[Mark]], last: int
) -> Iterator[Candidate]:
    """Yield marks of texts that the last text extends."""
    size = prompt.length
    found = [
        (mark, fingerprint, cut)
        for fingerprint, cut in prompt.cuts.items()
        for mark in marks.get(fingerprint, ())
        if 0 < mark.length < size
    ]
    found.sort(key=lambda of: of[0].length, reverse=True)
    seen: dict[int, int] = {}
    for mark, fingerprint, cut in found:
        # Texts with the same beginning often have the same length, too.
        tail = seen.get(mark.length)
        if tail is None:
            tail = seen[mark.length] = prompt.beginning(cut, mark.length)
        if tail == mark.tail:
            yield Candidate(mark, fingerprint, last - 1, False, False)


def named(ids: Sequence[int], known: Known) -> Iterator[Candidate]:
    """Yield the marks of the last tool call id that exactly one program received. Their point is
    before the chain's first, because points of the chain are stronger evidence. ids: the last ones
    first.
    """
    for fingerprint in ids:
        marks = known.marks.get(fingerprint, ())
        if len({root_of(mark, known) for mark in marks}) == 1:
            for mark in marks:
                yield Candidate(mark, fingerprint, -1, False, False)
            return


def root_of(mark: Mark, known: Known) -> str:
    """Return the program that a mark counts for: its own program, or the one it is folded into."""
    return known.folded.get(mark.program, mark.program)
