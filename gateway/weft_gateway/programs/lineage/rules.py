"""Decides the program of a call from the stored data of its fingerprints. Pure: no clock, no I/O.

The evidence is text that was written for one program: the model's answers, and everything after
them. Many programs share text that clients write (system prompts, tasks, tools). Such text only
joins a call to the end of a thread, and only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from weft_gateway.programs.lineage.candidates import Candidate, candidates_of, named, root_of
from weft_gateway.programs.lineage.fingerprint import End, Fingerprint
from weft_gateway.programs.lineage.marks import Entry, Known, Mark, State

# Bytes of an answer's pieces in a prompt that prove the program.
EVIDENCE_BYTES: Final = 64
# The name of a program's first thread.
MAIN: Final = "main"


class How(StrEnum):
    """The relation of a call to its thread.

    NEW: the first call of a program. EXTENDS: continues from the thread's end. FORKS: continues
    from an earlier point. REPEATS: repeats an earlier request. QUOTES: starts a thread whose prompt
    contains text from the program's model.
    """

    NEW = "new"
    EXTENDS = "extends"
    FORKS = "forks"
    REPEATS = "repeats"
    QUOTES = "quotes"


class Verdict(NamedTuple):
    """The program and thread of a call. program: after folding. owner: the name under which the
    call is stored; it differs from program while that is folded. parent: the thread that it came
    from, or "". joined: other threads whose answers the prompt contains, as (owner, thread). state:
    State bits of the call's marks. entries, folds: updates for the store (see MemoryLineage.put).
    """

    how: How
    program: str
    owner: str
    thread: str
    parent: str = ""
    state: int = 0
    joined: tuple[tuple[str, str], ...] = ()
    entries: tuple[Entry, ...] = ()
    folds: tuple[tuple[str, str], ...] = ()

    @property
    def thread_name(self) -> str:
        """The thread's name within its program."""
        return shown(self.owner, self.thread, self.program)

    @property
    def parent_name(self) -> str:
        """The parent thread's name within its program, or ""."""
        return shown(self.owner, self.parent, self.program) if self.parent else ""


def shown(owner: str, thread: str, program: str) -> str:
    """Return the name of a thread within a program. owner: the name under which the thread is
    stored; it differs from `program` while the owner is folded into it. Threads of two owners have
    different names.
    """
    if thread == MAIN:
        return MAIN if owner == program else owner
    return thread if owner == program else f"{owner}/{thread}"


class Asked(NamedTuple):
    """A call with its verdict, as needed to store its answer."""

    tenant: str
    prompt: Fingerprint
    verdict: Verdict


def decide(
    prompt: Fingerprint,
    known: Known,
    pieces: Mapping[int, int],
    fresh: str,
    now_s: float,
    ids: Sequence[int] = (),
    older: Mapping[int, int] | None = None,
) -> Verdict:
    """Decide the program and thread of a call. pieces: of its text, from `Fingerprint.recent`. ids:
    fingerprints of the tool call ids in it, the last ones first. older: further pieces, perhaps of
    this program's model: they find the program, and join no other. fresh: a unique name for a new
    program or thread.
    """
    if not known.marks:
        return begun(prompt, fresh, now_s)
    candidates = [*candidates_of(prompt, known), *named(ids, known)]
    said = _said(known, {**older, **pieces} if older else pieces)
    if not (candidates or said):
        return begun(prompt, fresh, now_s)
    verdict = _proven(candidates, known, fresh)
    if verdict is None:
        verdict = _quoted(candidates, known, said, fresh) or _unproven(
            candidates, known, prompt, fresh
        )
    quoted = _said(known, pieces) if older else said
    return _complete(verdict, candidates, known, quoted, prompt, now_s)


def begun(prompt: Fingerprint, fresh: str, now_s: float) -> Verdict:
    """Return the verdict for the first call of a program."""
    mark = Mark(fresh, MAIN, State.RUNS, now_s)
    return Verdict(How.NEW, fresh, fresh, MAIN, "", mark.state, (), tuple(left(prompt.end(), mark)))


def _proven(candidates: Sequence[Candidate], known: Known, fresh: str) -> Verdict | None:
    """Return the thread with text that was written for it alone, None if none is found."""
    fallback: Candidate | None = None
    for candidate in candidates:
        mark = candidate.mark
        if not mark.state & State.PROVEN:
            continue
        ended = mark.state & State.EXTENDED
        if candidate.whole:
            if mark.state & State.FAILED:
                return _to(candidate, How.REPEATS, known)
            fallback = fallback or candidate
        elif fallback is None:
            if not ended:
                return _to(candidate, How.EXTENDS, known)
            fallback = candidate
        elif not ended and (
            candidate.fingerprint == fallback.fingerprint or mark.program != fallback.mark.program
        ):
            # Two threads share the text up to here, and this one has not continued.
            return _to(candidate, How.EXTENDS, known)
    if fallback is None:
        return None
    return _to(fallback, How.REPEATS if fallback.whole else How.FORKS, known, fresh)


def _said(known: Known, pieces: Mapping[int, int]) -> dict[Mark, int]:
    """Return the bytes of pieces that only one program's answers contain, by the mark of that
    answer.
    """
    found: dict[Mark, int] = {}
    if pieces.keys().isdisjoint(known.marks):
        return found
    names: dict[tuple[str, str], Mark] = {}
    for fingerprint in known.marks.keys() & pieces.keys():
        marks = [mark for mark in known.marks[fingerprint] if mark.state & State.SAID]
        if len({root_of(mark, known) for mark in marks}) == 1:
            mark = names.setdefault(marks[0][:2], marks[0])
            found[mark] = found.get(mark, 0) + pieces[fingerprint]
    return found


def _quoted(
    candidates: Sequence[Candidate], known: Known, said: Mapping[Mark, int], fresh: str
) -> Verdict | None:
    """Return the program whose answers the text contains, if the evidence suffices."""
    by_program: dict[str, int] = {}
    for mark, size in said.items():
        program = root_of(mark, known)
        by_program[program] = by_program.get(program, 0) + size
    program = max(by_program, key=by_program.__getitem__, default="")
    if by_program.get(program, 0) < EVIDENCE_BYTES:
        return None
    for candidate in candidates:
        mark = candidate.mark
        ended = mark.state & State.EXTENDED
        if not ended and root_of(mark, known) == program:
            how = How.REPEATS if candidate.whole else How.EXTENDS
            return _to(candidate, how, known)
    mark = max((m for m in said if root_of(m, known) == program), key=said.__getitem__)
    return Verdict(How.QUOTES, program, mark.program, fresh, mark.thread, State.PROVEN)


def _unproven(
    candidates: Sequence[Candidate], known: Known, prompt: Fingerprint, fresh: str
) -> Verdict:
    """Decide by text that other programs may send, too: the end of one thread, a retry, or a new
    program.
    """
    tip: Candidate | None = None
    edited: list[Candidate] = []
    for candidate in candidates:
        mark = candidate.mark
        if candidate.whole and mark.state & State.FAILED:
            return _to(candidate, How.REPEATS, known)
        if mark.state & State.EXTENDED:
            continue
        if candidate.whole:
            continue  # Another program sends the same request.
        if mark.state & State.ANSWERED and candidate.answered:
            # The next message of the model differs from the answer that the thread received.
            edited.append(candidate)
        elif tip is None or (tip.place == candidate.place and mark.at_s < tip.mark.at_s):
            # Of the threads at one place, the one that has waited longest continues.
            tip = candidate
    if tip is None and len(edited) == 1:
        (tip,) = edited
    if tip is not None:
        spoken = prompt.turn > tip.point + 1
        return _to(tip, How.EXTENDS, known, state=State.PROVEN if spoken else State.RUNS)
    return Verdict(How.NEW, fresh, fresh, MAIN)


def _to(
    candidate: Candidate, how: How, known: Known, fresh: str = "", state: int = State.PROVEN
) -> Verdict:
    """Return the verdict that a call belongs to a candidate's thread, or to a new thread that
    starts there.
    """
    mark = candidate.mark
    program = root_of(mark, known)
    if how is How.REPEATS:
        state = mark.state & State.PROVEN
    if fresh:
        return Verdict(how, program, mark.program, fresh, mark.thread, state)
    return Verdict(how, program, mark.program, mark.thread, "", state)


def _complete(
    verdict: Verdict,
    candidates: Sequence[Candidate],
    known: Known,
    said: Mapping[Mark, int],
    prompt: Fingerprint,
    now_s: float,
) -> Verdict:
    """Add the updates for the store to the verdict."""
    own = verdict.owner, verdict.thread
    program = verdict.program
    ends: list[Candidate] = []
    if verdict.how is How.EXTENDS:
        ends = [c for c in candidates if c.mark[:2] == own and not c.whole]
        ends = [c for c in ends if not c.mark.state & State.EXTENDED]
    joined = [m for m, size in said.items() if m[:2] != own and size >= EVIDENCE_BYTES]
    others = {root_of(m, known) for m in joined if m.program != own[0]} - {program}
    entries = [
        Entry(c.fingerprint, c.mark._replace(state=c.mark.state | State.EXTENDED)) for c in ends
    ]
    entries += left(prompt.end(), Mark(*own, verdict.state, now_s))
    return verdict._replace(
        joined=tuple((mark.program, mark.thread) for mark in joined),
        entries=tuple(entries),
        folds=tuple((other, program) for other in others),
    )


def left(end: End | None, mark: Mark) -> list[Entry]:
    """Return the marks of a call at the end of its messages: one there, and one at the last point
    inside the last text, from which a longer text finds the end.
    """
    if end is None:
        return []
    entries = [Entry(end.point, mark)]
    if end.cut:
        program, thread, state, at_s, *_ = mark
        entries.append(Entry(end.cut, Mark(program, thread, state, at_s, end.length, end.point)))
    return entries
