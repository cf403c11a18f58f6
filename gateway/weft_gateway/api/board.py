"""The live view's rows: computed for all viewers at once, at most twice a second, and only while
someone looks. A viewer gets the rows on its page that changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any, Final

import httpx
import orjson

from weft_gateway.calls.admission import Gates
from weft_gateway.calls.features.live import LiveObserver, Seen
from weft_gateway.calls.spending import use_of_budget
from weft_gateway.engine.described import engine_load
from weft_gateway.engine.engine_request import ReplicaKind, program_digest
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.errors import ApiError
from weft_gateway.model import Program
from weft_gateway.model.load import EngineLoad
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry import view
from weft_gateway.telemetry.view import Query, Row

_TICK_S: Final = 0.5
_POLL_S: Final = 1.0
# What is known of engines is of no use after this time, seconds.
_STALE_S: Final = 10.0
# Rows computed per turn of the event loop.
_A_TURN: Final = 128
# Ended programs stay for this long, seconds.
_ENDED_S: Final = 120.0
_MOST_VIEWERS: Final = 256
_MOST_OF_TENANT: Final = 16
_FIRST_EVENTS: Final = 50
# Names of programs before a held one.
_NAMED: Final = 3

# The state of a program, its beginning, and the programs before a held one.
State = tuple[str, float, int]
# Writes a part of the view: `row`, `engines` or `events`.
Write = Callable[[str, Any], Any]


@dataclass(slots=True, eq=False)
class _Cell:
    """A row. A change makes a new one. facts: what it was computed from. html: for the page."""

    tenant: str
    facts: tuple[Any, ...]
    row: Row
    html: Any = None


@dataclass(slots=True, eq=False)
class Viewer:
    """Someone who looks, and what it has. admin: whether it sees the engines. html: writes the
    page; None for JSON.
    """

    query: Query
    admin: bool
    html: Write | None = None
    _sent: Mapping[str, _Cell] = field(default_factory=dict)
    _last: dict[str, Any] = field(default_factory=dict)
    _event: int = 0

    def changes(self, board: Board) -> dict[str, Any]:
        """Return what has changed since the last time, empty if nothing has."""
        rows, counts = board.page(self.query)
        before, self._sent = self._sent, {row["row"]: board.cells[row["row"]] for row in rows}
        new = {name: cell for name, cell in self._sent.items() if before.get(name) is not cell}
        now = {"order": list(self._sent), "counts": counts, "budgets": board.budgets}
        if self.admin:
            now["engines"] = board.engines
        found = {name: value for name, value in now.items() if value != self._last.get(name)}
        self._last = now
        events = board.live.after(self._event, self.query.tenant, self.admin)
        if events:
            self._event, found["events"] = events[-1]["number"], events[-_FIRST_EVENTS:]
        if new:
            found["rows"] = {name: self._written(cell) for name, cell in new.items()}
        if self.html is not None:
            for part in found.keys() & {"engines", "events"}:
                found[part] = self.html(part, found[part])
        return found

    def _written(self, cell: _Cell) -> Any:
        """Return a row as all viewers of this kind get it."""
        if self.html is None:
            return cell.row
        cell.html = cell.html or self.html("row", cell.row)
        return cell.html


@dataclass(slots=True, eq=False)
class Board:
    """The rows. name: of a tenant, for people. heartbeat_s: of a stream without news, 0 for none.
    cells: programs by row. engines: in the registry's order. budgets: whether a program has one.
    """

    live: LiveObserver
    table: ProcessTable
    registry: Registry
    client: EngineClient
    gates: Gates
    name: Callable[[str], str]
    heartbeat_s: float
    cells: dict[str, _Cell] = field(default_factory=dict, init=False)
    engines: list[Row] = field(default_factory=list, init=False)
    budgets: bool = field(default=False, init=False)
    closed: bool = field(default=False, init=False)
    _viewers: list[Viewer] = field(default_factory=list, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _updated_s: float = field(default=-_STALE_S, init=False)
    _polled_s: float = field(default=-_STALE_S, init=False)
    _poll: asyncio.Future[Any] | None = field(default=None, init=False)
    _pages: dict[Query, tuple[list[Row], dict[str, int]]] = field(default_factory=dict, init=False)
    # By replica; and its output tokens per second, and the time of the reading.
    _loads: dict[str, EngineLoad] = field(default_factory=dict, init=False)
    _paces: dict[str, tuple[float | None, float]] = field(default_factory=dict, init=False)

    def close(self) -> None:
        """End all streams: the gateway stops."""
        self.closed = True
        if self._poll is not None:
            self._poll.cancel()

    def check_room(self, tenant: str | None) -> None:
        """Raise ApiError 429 if there are too many viewers."""
        own = sum(viewer.query.tenant == tenant for viewer in self._viewers)
        if len(self._viewers) >= _MOST_VIEWERS or (tenant and own >= _MOST_OF_TENANT):
            raise ApiError(429, "too_many_listeners", "Too many viewers look at the programs.")

    async def stream(self, viewer: Viewer, allowed: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield server-sent events with what changes, until the gateway stops or the viewer may not
        look any more.
        """
        self._viewers.append(viewer)
        silent_since = monotonic()
        try:
            while not self.closed:
                if not allowed():
                    yield b"event: signed-out\ndata: {}\n\n"
                    return
                await self.look()
                found = viewer.changes(self)
                if found:
                    yield b"data: %b\n\n" % orjson.dumps(found)
                    silent_since = monotonic()
                elif self.heartbeat_s and monotonic() - silent_since >= self.heartbeat_s:
                    yield b": still here\n\n"
                    silent_since = monotonic()
                await asyncio.sleep(_TICK_S)
        finally:
            self._viewers.remove(viewer)

    def page(self, query: Query) -> tuple[list[Row], dict[str, int]]:
        """Return the rows of a query, and counts by state. Computed once per tick."""
        if query not in self._pages:
            rows = ((cell.tenant, cell.row) for cell in self.cells.values())
            self._pages[query] = view.selected(rows, query)
        return self._pages[query]

    async def look(self) -> None:
        """Bring the rows up to date, unless another viewer just did."""
        async with self._turn:
            age_s = monotonic() - self._updated_s
            if age_s < 0.9 * _TICK_S:
                return
            if age_s > _STALE_S:
                self.cells, self._loads, self._pages = {}, {}, {}
            idle = self._poll is None or self._poll.done()
            if idle and monotonic() - self._polled_s > _POLL_S:
                self._polled_s = monotonic()
                self._poll = asyncio.gather(*map(self._read, self.registry))
            if self._poll is not None and age_s > _STALE_S:
                await asyncio.wait([self._poll])
            await self._update()
            self._updated_s = monotonic()

    async def _update(self) -> None:
        """Compute the rows that changed."""
        live, cells = self.live, {}
        live.forget_ended(time() - _ENDED_S)
        for number, (name, seen) in enumerate([*live.programs.items()]):
            if number % _A_TURN == _A_TURN - 1:
                await asyncio.sleep(0)
            cells[name] = cell = self._cell(seen, self.cells.get(name))
            was = self.cells[name].row["state"] if name in self.cells else cell.row["state"]
            if was != cell.row["state"] and view.HELD in (was, cell.row["state"]):
                what = "released" if was == view.HELD else "held"
                live.happened(what, seen.key, view.about(cell.row))
        # No reader sees half of a change: nothing here waits.
        if list(cells.values()) != list(self.cells.values()):
            self.cells, self._pages = cells, {}
        self.budgets = any(cell.row["spent"] for cell in cells.values())
        self.engines = [self._engine(replica) for replica in self.registry]

    def _cell(self, seen: Seen, known: _Cell | None) -> _Cell:
        program, load = self.table.peek(seen.key), self._loads.get(seen.replica)
        resident, size = (False, 0) if load is None else (seen.row in load.residents, load.tokens)
        state = state_of(seen, program, load)
        tokens = [call.placed.prompt_tokens for call in seen.calls if call.placed is not None]
        context, behind = max([seen.context, *tokens]), []
        if state[0] == view.HELD and load is not None:
            others = (self.live.programs.get(name) for name in load.residents)
            same = (o.key for o in others if o is not None and o.key.tenant == seen.key.tenant)
            behind = sorted(key.program for key in same if key != seen.key)[:_NAMED]
        facts = (
            program, state, context, resident, size, behind, len(seen.calls), seen.model,
            seen.replica,
        )  # fmt: skip
        if known is not None and known.facts == facts:
            return known
        program = program or Program(seen.key, state[1])
        prompt = program.prompt_tokens
        row = {
            "row": seen.row,
            "session": seen.key.program,
            "tenant": self.name(seen.key.tenant),
            "model": seen.model,
            "replica": seen.replica,
            "state": state[0],
            "since": state[1],
            "ahead": state[2],
            "behind": behind,
            "open": len(seen.calls),
            "context": context,
            "share": round(context / size, 4) if size else None,
            "resident": resident,
            "spent": use_of_budget(program),
            "begun": program.arrival_s,
            "calls": program.calls,
            "errors": program.errors,
            "hit": round(program.cached_tokens / prompt, 4) if prompt else None,
            "output": program.output_tokens,
            "path_s": round(program.critical_path_s, 2),
        }
        return _Cell(seen.key.tenant, facts, row)

    def _engine(self, replica: Replica) -> Row:
        """Return the row of an engine; None for what is unknown."""
        load = self._loads.get(replica.name)
        known, pace = load or EngineLoad(), self._paces.get(replica.name, (None, 0.0))[0]
        state = "serving" if replica.circuit.healthy else "down"
        return {
            "row": replica.name,
            "state": state if replica.homes_until is None else "draining",
            "residents": None if load is None else len(known.residents),
            "held": None if load is None else len(known.ahead),
            "blocks": known.blocks or None,
            "free": round((1 - known.usage) * known.blocks) if known.blocks else None,
            "batch": None if load is None else known.running,
            "slots": replica.slots or None,
            "waiting": None if load is None else known.waiting,
            "pace": None if load is None or pace is None else round(pace),
            "calls": self.table.in_flight().get(replica.name, 0),
        }

    async def _read(self, replica: Replica) -> None:
        """Read the load of an engine."""
        name, state = replica.name, None
        if replica.kind is ReplicaKind.GATEWAY:
            return
        before = self._loads.get(name)
        try:
            metrics = await self.client.fetch(replica, "/metrics", _POLL_S)
            if replica.kind is ReplicaKind.WEFT:
                answer = await self.client.fetch(replica, "/weft/state", _POLL_S)
                state = answer.json() if answer.status == 200 else None
        except (httpx.HTTPError, ValueError):
            self._loads.pop(name, None)
            return
        text = metrics.body.decode("utf-8", "replace") if metrics.status == 200 else ""
        load = engine_load(text, state)
        if not load.named:
            residents, held = self.gates.programs(name)
            ahead = {program_digest(key): count for key, count in held.items()}
            names = frozenset(map(program_digest, residents))
            load = replace(load, residents=names, ahead=ahead)
        now_s, pace = monotonic(), None
        if before is not None and load.generated >= before.generated:
            pace = (load.generated - before.generated) / max(1e-3, now_s - self._paces[name][1])
        self._loads[name], self._paces[name] = load, (pace, now_s)


def state_of(seen: Seen, program: Program | None, load: EngineLoad | None) -> State:
    """Return the state of a program. program: None if the process table does not have it any more.
    load: of its replica, None if unknown.
    """
    calls = seen.calls
    if not calls:
        if seen.ended_s is not None:
            return view.ENDED, seen.ended_s, 0
        if program is None:
            return view.ENDED, 0.0, 0
        if program.threads:
            # Another gateway serves its call.
            return view.RUNNING, program.threads[0].arrival_s, 0
        return view.GAP, program.last_completion_s or program.arrival_s, 0
    if any(call.first_byte_s > 0 for call in calls):
        return view.RUNNING, seen.since_s, 0
    claims = [call.claim for call in calls if call.claim is not None and not call.claim.sent_s]
    if all(call.overhead_s <= 0 or call.claim in claims for call in calls):
        return view.HELD, seen.since_s, max((claim.ahead for claim in claims), default=0)
    if load is not None and seen.row not in load.active:
        if seen.row in load.ahead:
            return view.HELD, seen.since_s, load.ahead[seen.row]
        if load.named or load.waiting:
            return view.QUEUED, seen.since_s, 0
    return view.RUNNING, seen.since_s, 0
