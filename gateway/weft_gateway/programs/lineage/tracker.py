"""The interface of lineage for callers: one step before a call, and one after it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from weft_gateway.programs.lineage.candidates import NEAR
from weft_gateway.programs.lineage.canonical import TEXT, said_in
from weft_gateway.programs.lineage.fingerprint import (
    MAX_PIECES,
    Fingerprint,
    key,
    keys,
    line_keys,
    lines,
    pieces,
)
from weft_gateway.programs.lineage.first_turns import FirstTurns
from weft_gateway.programs.lineage.marks import Entry, Known, Mark, State
from weft_gateway.programs.lineage.memory import MemoryLineage
from weft_gateway.programs.lineage.rules import Asked, How, Verdict, decide, left
from weft_gateway.programs.lineage.tool_ids import answered_ids, asked_ids

# Maximum pieces stored per answer, spread over it.
SAID_PIECES: Final = 16
# If an answer's pieces have fewer bytes than this, its lines are stored, too: it is probably code.
FEW_BYTES: Final = 256


class Lineage:
    """Finds the program and thread of calls without an identity."""

    def __init__(self, store: MemoryLineage) -> None:
        self._store = store
        self._first_turns = FirstTurns()

    def skips(self, tenant: str, body: Mapping[str, Any]) -> bool:
        """Whether a call is not worth `ask` (see FirstTurns). body: parsed."""
        return self._first_turns.skips(tenant, body)

    async def find(self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float) -> str:
        """Return the program that the messages continue, `fresh` if none. Stores nothing."""
        verdict, _ = await self._place(tenant, body, fresh, now_s)
        return verdict.program

    async def ask(self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float) -> Asked:
        """Decide a call's program and thread, and store them. body: parsed. fresh: the name for a
        new program or thread.
        """
        verdict, prompt = await self._place(tenant, body, fresh, now_s)
        self._first_turns.looked_up(tenant, body, verdict.how is How.NEW)
        await self._store.put(tenant, verdict.entries, verdict.folds, now_s)
        return Asked(tenant, prompt, verdict)

    async def _place(
        self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float
    ) -> tuple[Verdict, Fingerprint]:
        prompt = Fingerprint(tenant, body)
        recent = prompt.recent()
        # A call continues from one of its last messages, nearly always.
        last = prompt.points[-NEAR:]
        wanted = [*reversed(last), *reversed(prompt.cuts), *reversed(recent)]
        known = await self._store.get_many(tenant, wanted, now_s)
        if len(prompt.points) > NEAR and known.marks.keys().isdisjoint(last):
            known = await self._store.get_many(tenant, [*reversed(prompt.points), *wanted], now_s)
        verdict = decide(prompt, known, recent, fresh, now_s)
        if prompt.turn and not verdict.state & State.PROVEN:
            older, ids, spoken = prompt.older(), asked_ids(body), prompt.spoken()
            wanted = [*ids, *reversed(spoken), *reversed(older)][:MAX_PIECES]
            more = await self._store.get_many(tenant, wanted, now_s)
            known = Known({**known.marks, **more.marks}, {**known.folded, **more.folded})
            verdict = decide(prompt, known, recent, fresh, now_s, ids, {**older, **spoken})
        return verdict, prompt

    async def answered(self, call: Asked, answer: Mapping[str, Any], now_s: float) -> None:
        """Store the content of an answer. answer: its parsed body in non-streaming form. Unknown
        parts are skipped.
        """
        answers, ids = said_in(answer), answered_ids(answer)
        prompt, verdict = call.prompt, call.verdict
        end = prompt.end()
        owner, thread, state = verdict.owner, verdict.thread, verdict.state
        entries = []
        if end is not None:
            entries.append(Entry(end.point, Mark(owner, thread, state | State.ANSWERED, now_s)))
        ended = Mark(owner, thread, State.ANSWERED | State.PROVEN | State.ANSWER, now_s)
        for atoms in answers:
            (kind, text), *_ = atoms
            entries += left(prompt.grown(text) if kind is TEXT else prompt.after(atoms), ended)
        if ids:
            own = ended._replace(state=ended.state | State.SAID)
            entries += [Entry(fingerprint, own) for fingerprint in ids]
        said = Mark(owner, thread, State.SAID, now_s)
        found = {*pieces(answers)}
        if found:
            known = {*prompt.own().pieces}
            found = {piece for piece in found if key(piece) not in known}
            entries += [Entry(each, said) for each in keys(_spread(found))]
        if sum(map(len, found)) < FEW_BYTES and (code := {*lines(answers)}):
            known = {*prompt.own().lines}
            new = [each for each in line_keys(_spread(code)) if each not in known]
            entries += [Entry(each, said) for each in new]
        await self._store.put(call.tenant, entries, (), now_s)

    async def failed(self, call: Asked, now_s: float) -> None:
        """Record that the call ended without an answer, so that a repeated request is a retry."""
        verdict = call.verdict
        mark = Mark(verdict.owner, verdict.thread, verdict.state | State.FAILED, now_s)
        await self._store.put(call.tenant, left(call.prompt.end(), mark), (), now_s)


def _spread(found: Set[bytes]) -> list[bytes]:
    """Return at most as many pieces as are stored."""
    return sorted(found)[:: -(-len(found) // SAID_PIECES) or 1]
