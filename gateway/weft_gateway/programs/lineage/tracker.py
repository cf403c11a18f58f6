"""The one object to call for lineage: before a call, and after it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from weft_gateway.programs.lineage.canonical import TEXT, said_in
from weft_gateway.programs.lineage.fingerprint import (
    MAX_PIECES,
    Fingerprint,
    keys,
    line_keys,
    lines,
    pieces,
)
from weft_gateway.programs.lineage.marks import Entry, Known, Mark, State
from weft_gateway.programs.lineage.rules import Asked, Verdict, decide, left
from weft_gateway.programs.lineage.store import LineageStore
from weft_gateway.programs.lineage.tool_ids import answered_ids, asked_ids

# Pieces of one answer that are remembered, spread over it.
SAID_PIECES: Final = 16
# Of an answer with fewer bytes of pieces than this, lines are remembered as well: it is code.
FEW_BYTES: Final = 256


class Lineage:
    """Finds the program and the thread of calls without a key."""

    def __init__(self, store: LineageStore) -> None:
        self._store = store

    async def find(self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float) -> str:
        """The program that messages continue; `fresh` if none. Nothing is remembered of them."""
        verdict, _ = await self._place(tenant, body, fresh, now_s)
        return verdict.program

    async def ask(self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float) -> Asked:
        """Place a call. body: as parsed. fresh: the name for a new program and a new thread."""
        verdict, prompt = await self._place(tenant, body, fresh, now_s)
        await self._store.put(tenant, verdict.entries, verdict.folds, now_s)
        return Asked(tenant, prompt, verdict)

    async def _place(
        self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float
    ) -> tuple[Verdict, Fingerprint]:
        prompt = Fingerprint(tenant, body)
        recent = prompt.recent()
        wanted = [*reversed(prompt.points), *reversed(prompt.cuts), *reversed(recent)]
        known = await self._store.get_many(tenant, wanted, now_s)
        verdict = decide(prompt, known, recent, fresh, now_s)
        if prompt.turn and not verdict.state & State.PROVEN:
            older, ids, spoken = prompt.older(), asked_ids(body), prompt.spoken()
            wanted = [*ids, *reversed(spoken), *reversed(older)][:MAX_PIECES]
            more = await self._store.get_many(tenant, wanted, now_s)
            known = Known({**known.marks, **more.marks}, {**known.folded, **more.folded})
            verdict = decide(prompt, known, {**older, **spoken, **recent}, fresh, now_s, ids)
        return verdict, prompt

    async def answered(self, call: Asked, answer: Mapping[str, Any], now_s: float) -> None:
        """Remember what the model said. answer: its parsed body, as without streaming. What is not
        understood counts as nothing."""
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
            found -= prompt.own()
            entries += [Entry(key, said) for key in keys(_spread(found))]
        if sum(map(len, found)) < FEW_BYTES and (code := {*lines(answers)}):
            code -= prompt.own_lines()
            entries += [Entry(key, said) for key in line_keys(_spread(code))]
        await self._store.put(call.tenant, entries, (), now_s)

    async def failed(self, call: Asked, now_s: float) -> None:
        """The call ended without an answer: whoever asks the same tries again."""
        verdict = call.verdict
        mark = Mark(verdict.owner, verdict.thread, verdict.state | State.FAILED, now_s)
        await self._store.put(call.tenant, left(call.prompt.end(), mark), (), now_s)


def _spread(found: Set[bytes]) -> list[bytes]:
    """Some of the pieces, no more than are remembered."""
    return sorted(found)[:: -(-len(found) // SAID_PIECES) or 1]
