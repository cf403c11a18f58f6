"""What is remembered of a fingerprint: whose it is, and what has come of it since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple


class State:
    """What has come of a call: bits. (No Flag of enum, whose every test costs a microsecond.)

    ANSWERED, FAILED: how it ended; neither while it runs. ANSWER: the mark is at the end of the
    answer, else at the end of what was asked. EXTENDED: a later call of its thread went
    on from here. PROVEN: the text up to here was written for this program and no other. SAID: not a
    point of a chain, but a piece of an answer.
    """

    RUNS: Final = 0
    ANSWERED: Final = 1
    FAILED: Final = 2
    EXTENDED: Final = 4
    PROVEN: Final = 8
    SAID: Final = 16
    ANSWER: Final = 64


class Mark(NamedTuple):
    """A thread was here. at_s: Unix time, seconds.

    tail: where the fingerprint is of a text's beginning, that of the whole text, which has `length`
    bytes; both are 0 elsewhere.
    """

    program: str
    thread: str
    state: int
    at_s: float
    length: int = 0
    tail: int = 0


class Entry(NamedTuple):
    """A mark that is to be put at a fingerprint."""

    fingerprint: int
    mark: Mark


class Known(NamedTuple):
    """What is known of some fingerprints. marks: newest first, one a thread and
    tail. folded: programs that
    are taken for a part of another, each with the other, which is not folded itself."""

    marks: Mapping[int, Sequence[Mark]]
    folded: Mapping[str, str]


# What later news of a call does not take back.
LASTING: Final = State.ANSWERED | State.EXTENDED | State.PROVEN


def merged(marks: Iterable[Mark]) -> list[Mark]:
    """One mark a thread and tail, of several, newest first: the newest, with what lasts of the
    older ones."""
    found: dict[tuple[str, str, int], Mark] = {}
    for mark in marks:
        of = mark.program, mark.thread, mark.tail
        newer = found.get(of)
        if newer is None:
            found[of] = mark
        elif (state := newer.state | (mark.state & LASTING)) != newer.state:
            found[of] = newer._replace(state=state)
    return list(found.values())
