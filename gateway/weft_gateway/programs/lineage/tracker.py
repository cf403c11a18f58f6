"""The one object to call for lineage: before a call, and after it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from weft_gateway.programs.lineage.answers import parse_answer, said_in
from weft_gateway.programs.lineage.canonical import TEXT
from weft_gateway.programs.lineage.marks import Entry, Known, Mark, State
from weft_gateway.programs.lineage.openings import Opening, Openings
from weft_gateway.programs.lineage.rules import Asked, How, Verdict, begun, decide, left
from weft_gateway.programs.lineage.sketch import MAX_PIECES, Sketch, keys, line_keys, lines, pieces
from weft_gateway.programs.lineage.store import LineageStore
from weft_gateway.programs.lineage.tool_ids import answered_ids, asked_ids

# Pieces of one answer that are remembered, spread over it.
SAID_PIECES: Final = 16
# Of an answer with fewer bytes of pieces than this, lines are remembered as well: it is code.
FEW_BYTES: Final = 256
# What a call is that goes on from nothing.
_ALONE: Final = frozenset({How.NEW, How.REPEATS})


class Lineage:
    """Finds the program and the thread of calls without a key."""

    def __init__(self, store: LineageStore) -> None:
        self._store = store
        # Another gateway could not read what is kept here.
        self._openings = None if store.shared else Openings()

    async def find(self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float) -> str:
        """The program that messages continue; `fresh` if none. Nothing is remembered of them."""
        verdict, _ = await self._place(tenant, body, fresh, now_s)
        return verdict.program

    async def ask(
        self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float
    ) -> Asked | Opening:
        """Place a call. body: as parsed. fresh: the name for a new program and a new thread. An
        Opening is not looked into: by all that is known it is a program of its own."""
        return self.keep(tenant, body, fresh, now_s) or await self.look(tenant, body, fresh, now_s)

    def keep(
        self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float
    ) -> Opening | None:
        """As `ask`, for a call that is only kept, which takes no waiting; None for any other, which
        `look` then places."""
        openings = self._openings
        return None if openings is None else openings.keep(tenant, body, fresh, now_s)

    async def look(self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float) -> Asked:
        """As `ask`, for a call that `keep` has not taken."""
        openings = self._openings
        verdict, sketch = await self._place(tenant, body, fresh, now_s)
        if openings is not None:
            openings.saw(tenant, body, verdict.how in _ALONE)
        await self._store.put(tenant, verdict.entries, verdict.folds, now_s)
        return Asked(tenant, sketch, verdict)

    async def _read(self, opening: Opening) -> Asked:
        """Look into a call that was only kept, and into its answer."""
        sketch = Sketch(opening.tenant, opening.body())
        verdict = begun(sketch, opening.fresh, opening.at_s)
        await self._store.put(opening.tenant, verdict.entries, (), opening.at_s)
        placed = opening.placed = Asked(opening.tenant, sketch, verdict)
        if opening.raw:
            await self.answered(placed, opening.raw, opening.stream, opening.at_s)
        return placed

    async def _place(
        self, tenant: str, body: Mapping[str, Any], fresh: str, now_s: float
    ) -> tuple[Verdict, Sketch]:
        if self._openings is not None:
            for opening in self._openings.taken_up(tenant, body):
                await self._read(opening)
        sketch = Sketch(tenant, body)
        recent = sketch.recent()
        wanted = [*reversed(sketch.points), *reversed(sketch.cuts), *reversed(recent)]
        known = await self._store.get_many(tenant, wanted, now_s)
        verdict = decide(sketch, known, recent, fresh, now_s)
        if sketch.turn and not verdict.state & State.PROVEN:
            older, ids, spoken = sketch.older(), asked_ids(body), sketch.spoken()
            wanted = [*ids, *reversed(spoken), *reversed(older)][:MAX_PIECES]
            more = await self._store.get_many(tenant, wanted, now_s)
            known = Known({**known.marks, **more.marks}, {**known.folded, **more.folded})
            verdict = decide(sketch, known, {**older, **spoken, **recent}, fresh, now_s, ids)
        return verdict, sketch

    async def answered(self, call: Asked | Opening, raw: bytes, stream: bool, now_s: float) -> None:
        """Remember what the model said. raw: the answer's body; stream: it is server-sent events.
        What is not understood counts as nothing."""
        if isinstance(call, Opening):
            if self.keep_answer(call, raw, stream) or call.placed is None:
                return
            call = call.placed
        answer = parse_answer(raw, stream)
        answers, ids = said_in(answer), answered_ids(answer)
        sketch, verdict = call.sketch, call.verdict
        end = sketch.end()
        owner, thread, state = verdict.owner, verdict.thread, verdict.state
        entries = []
        if end is not None:
            entries.append(Entry(end.point, Mark(owner, thread, state | State.ANSWERED, now_s)))
        ended = Mark(owner, thread, State.ANSWERED | State.PROVEN | State.ANSWER, now_s)
        for atoms in answers:
            (kind, text), *_ = atoms
            entries += left(sketch.grown(text) if kind is TEXT else sketch.after(atoms), ended)
        if ids:
            own = ended._replace(state=ended.state | State.SAID | (state & State.GUESS))
            entries += [Entry(fingerprint, own) for fingerprint in ids]
        said = Mark(owner, thread, State.SAID | (state & State.GUESS), now_s)
        found = {*pieces(answers)}
        if found:
            found -= sketch.own()
            entries += [Entry(key, said) for key in keys(_spread(found))]
        if sum(map(len, found)) < FEW_BYTES and (code := {*lines(answers)}):
            code -= sketch.own_lines()
            entries += [Entry(key, said) for key in line_keys(_spread(code))]
        await self._store.put(call.tenant, entries, (), now_s)

    def keep_answer(self, call: Opening, raw: bytes, stream: bool) -> bool:
        """As `answered`, for a call that is still only kept, which takes no waiting; False for one
        that has been read meanwhile, whose answer `answered` remembers."""
        if call.placed is not None or self._openings is None:
            return False
        self._openings.answered(call, raw, stream)
        return True

    async def failed(self, call: Asked | Opening, now_s: float) -> None:
        """The call ended without an answer: whoever asks the same tries again."""
        if isinstance(call, Opening):
            call.group.failed = True
            if self._openings is not None:
                self._openings.drop(call)
            call = call.placed if call.placed is not None else await self._read(call)
        verdict = call.verdict
        mark = Mark(verdict.owner, verdict.thread, verdict.state | State.FAILED, now_s)
        await self._store.put(call.tenant, left(call.sketch.end(), mark), (), now_s)

    async def apart(self, tenant: str, program: str, now_s: float) -> None:
        """The program has turned out to be on its own, by what lineage does not see."""
        await self._store.put(tenant, (), ((program, ""),), now_s)


def _spread(found: Set[bytes]) -> list[bytes]:
    """Some of the pieces, no more than are remembered."""
    return sorted(found)[:: -(-len(found) // SAID_PIECES) or 1]
