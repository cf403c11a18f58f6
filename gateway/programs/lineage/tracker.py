"""The one object to call for lineage: before a call, and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.programs.lineage.canonical import TEXT, Atom
from gateway.programs.lineage.marks import Entry, Known, Mark, State
from gateway.programs.lineage.rules import Verdict, decide, left
from gateway.programs.lineage.sketch import Sketch, keys, pieces
from gateway.programs.lineage.store import LineageStore

# Pieces of one answer that are remembered, spread over it.
SAID_PIECES: Final = 16


class Asked:
    """A call that lineage has placed: what is needed to remember its answer."""

    __slots__ = ("sketch", "tenant", "verdict")

    def __init__(self, tenant: str, sketch: Sketch, verdict: Verdict) -> None:
        self.tenant = tenant
        self.sketch = sketch
        self.verdict = verdict


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
        verdict, sketch = await self._place(tenant, body, fresh, now_s)
        await self._store.put(tenant, verdict.entries, verdict.folds, now_s)
        return Asked(tenant, sketch, verdict)

    async def _place(
        self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float
    ) -> tuple[Verdict, Sketch]:
        sketch = Sketch(tenant, body)
        recent = sketch.recent()
        wanted = [*reversed(sketch.points), *reversed(sketch.cuts), *reversed(recent)]
        known = await self._store.get_many(tenant, wanted, now_s)
        verdict = decide(sketch, known, recent, fresh, now_s)
        if sketch.turn and not verdict.state & State.PROVEN:
            older = sketch.older()
            more = await self._store.get_many(tenant, list(reversed(older)), now_s)
            known = Known({**known.marks, **more.marks}, {**known.folded, **more.folded})
            verdict = decide(sketch, known, {**older, **recent}, fresh, now_s)
        return verdict, sketch

    async def answered(self, call: Asked, answers: Sequence[Sequence[Atom]], now_s: float) -> None:
        """Remember what the model said: one list of atoms for each choice."""
        sketch, verdict = call.sketch, call.verdict
        mark = Mark(verdict.owner, verdict.thread, verdict.state | State.ANSWERED, now_s)
        entries = left(sketch.end(), mark)
        ended = mark._replace(state=State.ANSWERED | State.PROVEN | State.ANSWER)
        for answer in filter(None, answers):
            (kind, text), *_ = answer
            entries += left(sketch.grown(text) if kind is TEXT else sketch.after(answer), ended)
        found = set(pieces(answers)) - sketch.own()
        if found:
            step = -(-len(found) // SAID_PIECES)
            said = mark._replace(state=State.SAID | (verdict.state & State.GUESS))
            entries += [Entry(key, said) for key in keys(sorted(found)[::step])]
        await self._store.put(call.tenant, entries, (), now_s)

    async def failed(self, call: Asked, now_s: float) -> None:
        """The call ended without an answer: whoever asks the same tries again."""
        verdict = call.verdict
        mark = Mark(verdict.owner, verdict.thread, verdict.state | State.FAILED, now_s)
        await self._store.put(call.tenant, left(call.sketch.end(), mark), (), now_s)

    async def aclose(self) -> None:
        """Release the store's connections."""
        await self._store.aclose()
