"""The live view's rows, computed once for all viewers, twice a second, and only while someone
looks. A viewer gets the rows on its page that changed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any, Final, Protocol

import httpx
import orjson

from weft_gateway.calls.admission import Gates
from weft_gateway.calls.features.live import LiveObserver, Seen
from weft_gateway.engine.described import engine_load
from weft_gateway.engine.engine_request import ReplicaKind, program_digest
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.errors import ApiError
from weft_gateway.model import Program
from weft_gateway.model.load import EngineLoad
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry import view
from weft_gateway.telemetry.view import Event, Query, Row

_TICK_S: Final = 0.5
_POLL_S: Final = 1.0
_POLL_WITHIN_S: Final = 2.0
# The rows stay up to date for this long after the last look, seconds.
_LINGER_S: Final = 10.0
# Rows computed per turn of the event loop.
_A_TURN: Final = 128
# Ended programs stay for this long, seconds.
_ENDED_S: Final = 120.0
_MOST_VIEWERS: Final = 256
_MOST_OF_TENANT: Final = 16
_FIRST_EVENTS: Final = 50

# The use of a program's budget, as `spent` of its row: `text` and `share`. None without a budget.
Spent = Callable[[Program], Mapping[str, Any] | None]


class Parts(Protocol):
    """Writes parts of the view for one kind of viewer."""

    def row(self, row: Row) -> Any:
        """A program."""

    def engines(self, rows: list[Row]) -> Any:
        """All engines."""

    def events(self, events: list[Event]) -> Any:
        """Events, the oldest first."""


class Json:
    """Parts in JSON."""

    def row(self, row: Row) -> Any:
        """A program."""
        return row

    def engines(self, rows: list[Row]) -> Any:
        """All engines."""
        return rows

    def events(self, events: list[Event]) -> Any:
        """Events, the oldest first."""
        return [event.to_json() for event in events]


@dataclass(slots=True, eq=False)
class _Cell:
    """A row. version: changes with it. written: by each kind of parts."""

    tenant: str
    row: Row
    version: int
    written: dict[Parts, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Viewer:
    """Someone who looks, and what it has. admin: whether it sees the engines."""

    query: Query
    admin: bool
    parts: Parts
    _sent: dict[str, int] = field(default_factory=dict)
    _order: list[str] | None = None
    _counts: dict[str, int] = field(default_factory=dict)
    _engines: list[Row] | None = None
    _event: int = 0

    def changes(self, board: Board) -> dict[str, Any]:
        """Return what has changed since the last time, empty if nothing has."""
        found: dict[str, Any] = {}
        page, counts = board.page(self.query)
        order = [row["row"] for row in page]
        before, self._sent = self._sent, {name: board.cells[name].version for name in order}
        changed = [name for name in order if before.get(name) != self._sent[name]]
        if changed:
            found["rows"] = {name: board.written(name, self.parts) for name in changed}
        if order != self._order:
            found["order"] = self._order = order
        if counts != self._counts:
            found["counts"] = self._counts = counts
            found["budgets"] = board.budgets
        if self.admin and board.engines != self._engines:
            self._engines = board.engines
            found["engines"] = self.parts.engines(board.engines)
        events = board.events(self.query.tenant, self._event, self.admin)
        if events:
            self._event = events[-1].number
            found["events"] = self.parts.events(events[-_FIRST_EVENTS:])
        return found


class Board:
    """The rows. cells: programs by row. engines: in the registry's order. budgets: whether a
    program has one.
    """

    def __init__(
        self,
        live: LiveObserver,
        table: ProcessTable,
        registry: Registry,
        client: EngineClient,
        gates: Gates,
        name: Callable[[str], str],
        heartbeat_s: float | None,
        spent: Spent = lambda program: None,
    ) -> None:
        """name: of a tenant, for people. heartbeat_s: of a stream without news."""
        self.live = live
        self.cells: dict[str, _Cell] = {}
        self.engines: list[Row] = []
        self.budgets = False
        self._table, self._registry, self._client, self._gates = table, registry, client, gates
        self._name, self._spent = name, spent
        self._heartbeat_s = heartbeat_s
        self._viewers: list[Viewer] = []
        self._until = 0.0
        self._wanted, self._ticked = asyncio.Event(), asyncio.Event()
        self._fresh = self._closed = False
        self._version = 0
        self._pages: dict[Query, tuple[list[Row], dict[str, int]]] = {}
        self._loads: dict[str, EngineLoad] = {}
        self._paces: dict[str, float] = {}
        self._read_s: dict[str, float] = {}

    # -- for viewers -------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait until the rows are up to date."""
        self._until = monotonic() + _LINGER_S
        self._wanted.set()
        if not self._fresh:
            await self._ticked.wait()

    async def stream(self, viewer: Viewer, allowed: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield server-sent events with what changes, until the gateway stops or the viewer may not
        look any more.
        """
        with self._looking(viewer):
            await self.ready()
            silent_since = monotonic()
            while not self._closed:
                if not allowed():
                    yield b"event: signed-out\ndata: {}\n\n"
                    return
                found = viewer.changes(self)
                if found:
                    silent_since = monotonic()
                    yield b"data: %b\n\n" % orjson.dumps(found)
                elif self._heartbeat_s and monotonic() - silent_since >= self._heartbeat_s:
                    silent_since = monotonic()
                    yield b": still here\n\n"
                await self._ticked.wait()

    def check_room(self, tenant: str | None) -> None:
        """Raise ApiError 429 if there are too many viewers."""
        own = sum(viewer.query.tenant == tenant for viewer in self._viewers)
        if len(self._viewers) >= _MOST_VIEWERS or (tenant and own >= _MOST_OF_TENANT):
            raise ApiError(429, "too_many_listeners", "Too many viewers look at the programs.")

    def close(self) -> None:
        """End all streams: the gateway stops."""
        self._closed = True
        self._tick_over()

    def page(self, query: Query) -> tuple[list[Row], dict[str, int]]:
        """Return the rows of a query, and counts by state. Computed once per tick."""
        found = self._pages.get(query)
        if found is None:
            rows = ((cell.tenant, cell.row) for cell in self.cells.values())
            found = self._pages[query] = view.selected(rows, query)
        return found

    def written(self, name: str, parts: Parts) -> Any:
        """Return a row as a kind of viewers gets it. Written once per change."""
        cell = self.cells[name]
        if parts not in cell.written:
            cell.written[parts] = parts.row(cell.row)
        return cell.written[parts]

    def events(self, tenant: str | None, after: int, admin: bool) -> list[Event]:
        """Return the events after a number that a viewer may see."""
        found = []
        for event in reversed(self.live.events):
            if event.number <= after:
                break
            if admin if event.key is None else tenant in (None, event.key.tenant):
                found.append(event)
        return found[::-1]

    # -- the background task -----------------------------------------------------------------

    async def run(self) -> None:
        """Keep the rows up to date while someone looks, until cancelled."""
        live = self.live
        while True:
            await self._wanted.wait()
            live.watched = True
            live.changed.update(live.programs)
            polls = asyncio.create_task(self._polls())
            try:
                while self._viewers or monotonic() < self._until:
                    await self._update()
                    self._fresh = True
                    self._tick_over()
                    await asyncio.sleep(_TICK_S)
            finally:
                polls.cancel()
                live.watched = self._fresh = False
                live.changed.clear()
                self.cells.clear()
                self._pages.clear()
                self._loads.clear()
                self._wanted.clear()

    def _tick_over(self) -> None:
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()

    async def _update(self) -> None:
        """Compute the rows that changed."""
        live, cells = self.live, self.cells
        gone = live.forget_ended(time() - _ENDED_S)
        found: list[_Cell] = []
        behind: dict[tuple[str, str], list[str]] = {}
        changed, live.changed = list(live.changed), set()
        for number, name in enumerate(changed):
            if number % _A_TURN == _A_TURN - 1:
                await asyncio.sleep(0)
            seen = live.programs.get(name)
            if seen is None:
                gone.append(name)
                continue
            row = self._row(seen, behind)
            known = cells.get(name)
            if known is not None and known.row == row:
                continue
            was = None if known is None else known.row["state"]
            if view.HELD in (was, row["state"]) and was not in (None, row["state"]):
                what = "held" if row["state"] == view.HELD else "released"
                live.happened(what, seen.key, view.about(row))
            self._version += 1
            found.append(_Cell(seen.key.tenant, row, self._version))
        # No reader sees half of a change: nothing here waits.
        for name in gone:
            cells.pop(name, None)
        cells.update((cell.row["row"], cell) for cell in found)
        self.budgets = any(cell.row["spent"] for cell in cells.values())
        in_flight = self._table.in_flight()
        self.engines = [
            view.engine_row(
                one.name,
                _state(one),
                in_flight.get(one.name, 0),
                one.slots,
                self._loads.get(one.name),
                self._paces.get(one.name),
            )
            for one in self._registry
        ]
        self._pages.clear()

    def _row(self, seen: Seen, behind: dict[tuple[str, str], list[str]]) -> Row:
        program, load = self._table.peek(seen.key), self._loads.get(seen.replica)
        spent = None if program is None else self._spent(program)
        place = seen.replica, seen.key.tenant
        if seen.calls and load is not None and place not in behind:
            others = (self.live.programs.get(name) for name in load.residents)
            same = [one.key.program for one in others if one and one.key.tenant == place[1]]
            behind[place] = sorted(same)
        facts = view.Facts(
            seen.key,
            seen.row,
            self._name(seen.key.tenant),
            seen.model,
            seen.replica,
            seen.context,
            seen.ended_s,
            seen.requests(),
            behind.get(place, ()),
            spent,
        )
        return view.program_row(facts, program, load)

    async def _polls(self) -> None:
        while True:
            await asyncio.gather(*(self._poll(replica) for replica in self._registry))
            await asyncio.sleep(_POLL_S)

    async def _poll(self, replica: Replica) -> None:
        """Read the load of an engine."""
        name, state = replica.name, None
        if replica.kind is ReplicaKind.GATEWAY:
            return
        try:
            metrics = await self._client.fetch(replica, "/metrics", _POLL_WITHIN_S)
            if replica.kind is ReplicaKind.WEFT:
                answer = await self._client.fetch(replica, "/weft/state", _POLL_WITHIN_S)
                state = answer.json() if answer.status == 200 else None
        except (httpx.HTTPError, ValueError):
            self._loads.pop(name, None)
            self._paces.pop(name, None)
            return
        text = metrics.body.decode("utf-8", "replace") if metrics.status == 200 else ""
        load = engine_load(text, state)
        if not load.named:
            residents, held = self._gates.programs(name)
            ahead = {program_digest(key): count for key, count in held.items()}
            names = frozenset(map(program_digest, residents))
            load = replace(load, residents=names, ahead=ahead)
        before, now_s = self._loads.get(name), monotonic()
        if before is not None and load.generated >= before.generated:
            elapsed_s = max(1e-3, now_s - self._read_s[name])
            self._paces[name] = (load.generated - before.generated) / elapsed_s
        self._loads[name], self._read_s[name] = load, now_s
        self._note(name, before or EngineLoad(), load)

    def _note(self, name: str, before: EngineLoad, load: EngineLoad) -> None:
        """Note the programs whose rows an engine's load changes."""
        if before.tokens != load.tokens or bool(before.waiting) != bool(load.waiting):
            mine = [row for row, seen in self.live.programs.items() if seen.replica == name]
            self.live.changed.update(mine)
            return
        changed = before.residents ^ load.residents | before.active ^ load.active
        changed |= {row for row, _ in before.ahead.items() ^ load.ahead.items()}
        self.live.changed.update(changed & self.live.programs.keys())

    @contextlib.contextmanager
    def _looking(self, viewer: Viewer) -> Iterator[None]:
        self._viewers.append(viewer)
        try:
            yield
        finally:
            self._viewers.remove(viewer)
            self._until = monotonic() + _LINGER_S


def _state(replica: Replica) -> str:
    if replica.homes_until is not None:
        return "draining"
    return "serving" if replica.circuit.healthy else "down"
