"""Records of a fingerprint: its program and thread, and the state of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple


class State:
    """State bits of a call. (No enum.Flag: each of its tests costs a microsecond.)

    ANSWERED, FAILED: the call's outcome; neither while it runs. ANSWER: the mark is at the end of
    the answer, else at the end of the prompt. EXTENDED: a later call of the thread continued from
    here. PROVEN: the text up to here was written for this program only. SAID: a piece of an answer,
    not a point of a chain.
    """

    RUNS: Final = 0
    ANSWERED: Final = 1
    FAILED: Final = 2
    EXTENDED: Final = 4
    PROVEN: Final = 8
    SAID: Final = 16
    ANSWER: Final = 64


class Mark(NamedTuple):
    """One thread's visit at a fingerprint. at_s: Unix time, seconds.

    tail: if the fingerprint covers the beginning of a text, the fingerprint of the whole text,
    which has `length` bytes; both are 0 otherwise.
    """

    program: str
    thread: str
    state: int
    at_s: float
    length: int = 0
    tail: int = 0


class Entry(NamedTuple):
    """A mark to add at a fingerprint."""

    fingerprint: int
    mark: Mark


class Known(NamedTuple):
    """The stored data of some fingerprints. marks: newest first, one per thread and tail. folded:
    programs that count as part of another program, with that program, which is not folded itself.
    """

    marks: Mapping[int, Sequence[Mark]]
    folded: Mapping[str, str]


# Bits that later marks of the same call do not clear.
LASTING: Final = State.ANSWERED | State.EXTENDED | State.PROVEN


def merged(marks: Iterable[Mark]) -> list[Mark]:
    """Merge marks into one per thread and tail, newest first. The newest mark keeps the lasting
    bits of older ones.
    """
    found: dict[tuple[str, str, int], Mark] = {}
    for mark in marks:
        of = mark.program, mark.thread, mark.tail
        newer = found.get(of)
        if newer is None:
            found[of] = mark
        elif (state := newer.state | (mark.state & LASTING)) != newer.state:
            found[of] = newer._replace(state=state)
    return list(found.values())
