"""Runs a workflow over rows: a machine without I/O. Events in, commands out.

The caller reports events (`rows`, `succeeded`, `failed`, `credit`, `cancel`) and carries out the
commands that each of them returns. The simulator runs this machine in virtual time, and
`weft_run.io` with real calls.

Calls wait here, not in the engines: at most `windows[replica]` calls are in flight, and the next
one is that with the lowest turn. Prompts are rendered when they are sent. Rows are read while fewer
than `open_rows` are open, so memory does not depend on the length of the input.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from weft_run.language.answers import Answers
from weft_run.language.graph import Llm, Workflow, written
from weft_run.language.requests import ChatRequest, LlmRequest, Text
from weft_run.language.templates import TemplateError
from weft_run.plan.commands import (
    ANY,
    NO_USAGE,
    Abort,
    Command,
    Failure,
    Finish,
    Gate,
    NoLimits,
    Plan,
    Read,
    Reply,
    RowMajor,
    RunTool,
    Send,
    ToolRequest,
    Usage,
    Work,
    WriteRow,
)
from weft_run.plan.frames import Ask, Flight, Unit
from weft_run.plan.merging import is_safe, shared_key
from weft_run.plan.wavefront import Wavefront, template_failure
from weft_run.plan.windows import Entry, Windows

_NOT_NEEDED: Final = Failure("aborted", "no operator needs the call")
_CACHE_BYTES: Final = 67_108_864
# Open rows per call that may be in flight: the next rows must be ready when calls end.
_ROWS_PER_CALL: Final = 4


@dataclass(slots=True)
class Counts:
    """Of one operator. done, failed: executions, by items and rounds. calls: requests that were
    made. merged: executions that shared a request in flight. cached: executions with an answer from
    the cache, the journal or another run. usage: tokens of the calls.
    """

    done: int = 0
    failed: int = 0
    calls: int = 0
    merged: int = 0
    cached: int = 0
    usage: Usage = NO_USAGE


class Dispatch:
    """The machine. One instance runs one workflow over one input."""

    def __init__(
        self,
        workflow: Workflow,
        windows: Mapping[str, int],
        *,
        serves: Mapping[str, frozenset[str]] | None = None,
        speeds: Mapping[str, float] | None = None,
        tools: int = 8,
        open_rows: int = 0,
        plan: Plan | None = None,
        gate: Gate | None = None,
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        """windows: calls that may be in flight, by replica; `ANY` if replicas are not known.
        serves: models of replicas; one without an entry serves all. speeds: of replicas, as in
        `costs.relative_speeds`. tools: tools that may run at once. open_rows: rows in memory, 0 for
        four times the windows.
        """
        self._workflow = workflow
        self._written = written(workflow)
        self._windows = Windows(windows, serves, speeds)
        self._tools: list[Entry] = []
        self._tool_slots, self._tools_running = tools, 0
        self._most_rows = open_rows or max(16, _ROWS_PER_CALL * sum(windows.values()))
        self._plan: Plan = plan or RowMajor()
        self._gate: Gate = gate or NoLimits()
        self._wave = Wavefront(workflow)
        self._answers = Answers(cache_bytes)
        self._flights: dict[int, Flight] = {}
        self._by_key: dict[str, Flight] = {}
        self._by_unit: dict[Unit, Flight] = {}
        self._alone: set[Unit] = set()
        self._out: list[Command] = []
        self._number = 0
        self._asked, self._input_over, self._over = 0, False, False
        self.counts: dict[str, Counts] = {}

    def start(self) -> list[Command]:
        """Begin."""
        return self._commands()

    def rows(self, rows: Iterable[tuple[int, Mapping[str, Any]]], *, last: bool) -> list[Command]:
        """Rows were read: number and columns. last: the input has no further rows."""
        for number, columns in rows:
            self._asked -= 1
            if not self._over:
                self._plan.begin(number, columns)
                self._wave.begin(number, columns)
        if last:
            self._input_over, self._asked = True, 0
        return self._commands()

    def succeeded(
        self, number: int, value: Any, usage: Usage | None = None, *, repeatable: bool = True
    ) -> list[Command]:
        """A request has a value: text of an answer, or the result of a tool. usage: None if no call
        was made because the journal or another run has the answer. repeatable: whether the value
        is valid for equal requests; False if it depends on the time.
        """
        flight = self._ended(number, usage or NO_USAGE)
        if flight is None:
            return []
        counts = self._count(flight.work.operator)
        counts.calls += usage is not None
        counts.cached += usage is None
        first, others = flight.waiters[:1], flight.waiters[1:]
        if flight.work.shared and repeatable:
            self._answers.put(flight.work.key, value)
            first, others = flight.waiters, []
        for unit in first:
            self._done(unit, value)
        for unit in others:
            self._alone.add(unit)
            self._wait(unit)
        return self._commands()

    def failed(self, number: int, failure: Failure, usage: Usage | None = None) -> list[Command]:
        """A request has failed for good, or was aborted."""
        flight = self._ended(number, usage or NO_USAGE)
        if flight is None:
            return []
        self._count(flight.work.operator).calls += failure.attempts > 0
        for unit in flight.waiters:
            self._failed(unit, failure)
        return self._commands()

    def asked(self, number: int, ask: int, part: str, request: ChatRequest) -> list[Command]:
        """A tool needs a call while it runs; a `Reply` has its end. number: of the tool's work.
        ask: identifies the call. part: of the tool, for the counts.
        """
        flight = self._flights.get(number)
        if self._over or flight is None or not flight.waiters:
            return [Reply(ask, failure=_NOT_NEEDED)]
        unit = Ask.of(flight.waiters[0], part, request, flight.equal)
        unit.tool, unit.number = number, ask
        flight.asks.add(unit)
        self._wait(unit)
        return self._commands()

    def credit(self, window: str, slots: int) -> list[Command]:
        """A replica's window has changed: calls that may be in flight."""
        self._windows.resize(window, slots)
        return self._commands()

    def cancel(self) -> list[Command]:
        """Stop: abort all calls, and write no further rows."""
        self._stop("cancelled")
        return self._commands()

    @property
    def in_flight(self) -> int:
        """Calls in flight."""
        return self._windows.in_flight

    @property
    def open_rows(self) -> int:
        """Rows that have begun and not ended."""
        return len(self._wave.open)

    def _commands(self) -> list[Command]:
        """Do everything that is possible now, and return the commands."""
        self._absorb()
        while not self._over and (self._send_next() or self._run_next()):
            self._absorb()
        if not self._over:
            self._read_more()
            if self._input_over and not self._wave.open:
                self._over = True
                self._out.append(Finish("done"))
        out, self._out = self._out, []
        return out

    def _stop(self, reason: str) -> None:
        if not self._over:
            self._over = True
            calls = [one.work.number for one in self._flights.values() if one.work.is_call]
            self._out += [Abort(number) for number in calls]
            self._out.append(Finish(reason))

    def _absorb(self) -> None:
        """Take what the wavefront has decided."""
        wave = self._wave
        ready, wave.ready = wave.ready, []
        dropped, wave.dropped = wave.dropped, []
        ended, wave.ended = wave.ended, []
        if self._over:
            return
        for unit in ready:
            if not unit.dropped:
                self._wait(unit)
        for unit in dropped:
            self._drop(unit)
        for number, row in ended:
            self._plan.ended(number)
            self._out.append(WriteRow(number, row))
            if row.failed:
                self._gate.row_failed()
                if self._gate.spent:
                    self._stop(self._gate.spent)
                    return

    def _wait(self, unit: Unit) -> None:
        """Queue a unit until it is its turn."""
        self._number += 1
        turn = self._plan.turn(unit.operator, unit.row)
        entry = (turn, unit.row, unit.order, self._number, unit)
        if isinstance(unit.body, Llm):
            name = self._plan.replica(unit.operator, unit.row)
            self._windows.put(name, entry)
        else:
            heapq.heappush(self._tools, entry)

    def _drop(self, unit: Unit) -> None:
        """Release the request of a unit that is not needed. A tool that runs is not stopped: its
        effect would be unknown.
        """
        self._alone.discard(unit)
        flight = self._by_unit.pop(unit, None)
        if flight is None:
            return
        flight.waiters.remove(unit)
        if not flight.waiters and flight.work.is_call:
            self._by_key.pop(flight.work.key, None) if flight.work.shared else None
            self._out.append(Abort(flight.work.number))

    def _send_next(self) -> bool:
        """Make progress with one call. False if no call can proceed."""
        for name, waiting, place in self._windows.sources():
            entry = waiting.pop(place)
            if entry[-1].dropped:
                return True
            resolved = self._resolve(entry[-1])
            if resolved is None:
                return True
            work = self._work(entry[-1], *resolved, name)
            if not self._gate.admit(work):
                waiting.add(entry)
                if not self.in_flight:
                    self._stop("tokens")
                return False
            self._windows.take(name)
            self._begin(entry[-1], work)
            return True
        return False

    def _run_next(self) -> bool:
        """Make progress with one tool. False if no tool can proceed."""
        if not self._tools or self._tools_running >= self._tool_slots:
            return False
        unit = heapq.heappop(self._tools)[-1]
        if unit.dropped:
            return True
        resolved = self._resolve(unit)
        if resolved is not None:
            self._tools_running += 1
            self._begin(unit, self._work(unit, *resolved))
        return True

    def _resolve(self, unit: Unit) -> tuple[LlmRequest | ToolRequest, str | None] | None:
        """Return the request of a unit and its key, None if it needs no separate request."""
        try:
            request = unit.rendered(self._workflow.model)
        except TemplateError as error:
            self._failed(unit, template_failure(error))
            return None
        assert not isinstance(request, Text)
        if unit in self._alone:
            self._alone.remove(unit)
            return request, None
        key = shared_key(unit, request, self._written)
        if key is None:
            return request, None
        if key in self._answers:
            self._count(unit.operator).cached += 1
            self._done(unit, self._answers.get(key))
            return None
        flight = self._by_key.get(key)
        if flight is not None:
            self._count(unit.operator).merged += 1
            flight.waiters.append(unit)
            self._by_unit[unit] = flight
            return None
        return request, key

    def _work(
        self, unit: Unit, request: LlmRequest | ToolRequest, key: str | None, window: str = ANY
    ) -> Work:
        self._number += 1
        safe = is_safe(unit)
        return Work(
            number=self._number,
            row=unit.row,
            operator=unit.operator,
            key=key or unit.place,
            shared=key is not None,
            attempts=1 + unit.retries if safe else 1,
            safe=safe,
            request=request,
            window=window,
        )

    def _begin(self, unit: Unit, work: Work) -> None:
        flight = self._flights[work.number] = self._by_unit[unit] = Flight(work, [unit])
        if work.shared:
            self._by_key[work.key] = flight
        self._out.append(Send(work) if work.is_call else RunTool(work))

    def _ended(self, number: int, usage: Usage) -> Flight | None:
        """A request is not in flight any more. None if the run is over."""
        flight = self._flights.pop(number)
        work = flight.work
        if work.is_call:
            self._windows.give_back(work.window)
            self._gate.settle(number, usage.total)
            counts = self._count(work.operator)
            counts.usage = Usage(*map(sum, zip(counts.usage, usage, strict=True)))
        else:
            self._tools_running -= 1
        if work.shared and self._by_key.get(work.key) is flight:
            del self._by_key[work.key]
        for unit in flight.waiters:
            del self._by_unit[unit]
        # A node may still wait in a thread.
        for ask in flight.asks:
            ask.dropped = True
            self._drop(ask)
            self._out.append(Reply(ask.number, failure=_NOT_NEEDED))
        return None if self._over else flight

    def _done(self, unit: Unit, value: Any) -> None:
        self._count(unit.operator).done += 1
        if isinstance(unit, Ask):
            self._reply(unit, Reply(unit.number, value))
        else:
            self._wave.done(unit, value)

    def _failed(self, unit: Unit, failure: Failure) -> None:
        self._count(unit.operator).failed += 1
        if isinstance(unit, Ask):
            self._reply(unit, Reply(unit.number, failure=failure))
        else:
            self._wave.failed(unit, failure)

    def _reply(self, unit: Ask, reply: Reply) -> None:
        if not unit.dropped:
            self._flights[unit.tool].asks.discard(unit)
            self._out.append(reply)

    def _count(self, operator: str) -> Counts:
        return self.counts.setdefault(operator, Counts())

    def _read_more(self) -> None:
        """Ask for rows if there is room for a quarter of the open rows, or if none is open."""
        room = self._most_rows - len(self._wave.open) - self._asked
        if self._input_over or self._asked:
            return
        if room >= max(1, self._most_rows // 4) or not self._wave.open:
            self._asked = room
            self._out.append(Read(room))
