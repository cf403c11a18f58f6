"""What the live view needs to know: the programs that this gateway serves and their open requests,
and what happened. It also stops programs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, Final

from weft_gateway import errors
from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.engine_request import program_digest
from weft_gateway.engine.errors import ProgramStopped
from weft_gateway.engine.registry import Registry
from weft_gateway.model import ProgramKey
from weft_gateway.telemetry.view import Event, Request

_MOST_PROGRAMS: Final = 4096
_MOST_EVENTS: Final = 200
# How long a stopped program's calls are refused, seconds, and how many programs.
_STOPPED_S: Final = 300.0
_MOST_STOPPED: Final = 512


@dataclass(slots=True, eq=False)
class Seen:
    """A program with calls through this gateway. row: its opaque name. context: tokens of its last
    call. ended_s: None while it is alive.
    """

    key: ProgramKey
    row: str
    model: str = ""
    replica: str = ""
    context: int = 0
    ended_s: float | None = None
    calls: set[Call] = field(default_factory=set)

    def requests(self) -> list[Request]:
        """Return its open requests."""
        now_s, now = time(), perf_counter()
        return [_request(call, now_s - now + call.begun) for call in self.calls]


@dataclass(slots=True, eq=False)
class LiveObserver(CallObserver):
    """Follows programs. programs: by row, the longest idle first. events: the last ones. changed:
    the rows that changed since the view was rendered; only filled while it is `watched`.
    """

    programs: OrderedDict[str, Seen] = field(default_factory=OrderedDict)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    changed: set[str] = field(default_factory=set)
    watched: bool = False
    _rows: dict[ProgramKey, Seen] = field(default_factory=dict)
    # A call may get another program while it runs.
    _open: dict[Call, Seen] = field(default_factory=dict)
    _stopped: OrderedDict[ProgramKey, float] = field(default_factory=OrderedDict)
    _healthy: dict[str, bool] = field(default_factory=dict)
    _count: int = 0

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls that generate text."""
        return endpoint.is_text and endpoint is not PREFILL

    def arrived(self, call: Call) -> None:
        """Refuse calls of a program that was stopped a moment ago: its agent would go on."""
        until_s = self._stopped.get(call.key) if self._stopped else None
        if until_s is not None and time() < until_s:
            raise errors.of("program_stopped")

    def held(self, call: Call) -> None:
        """The program is known."""
        key = call.key
        seen = self._rows.get(key)
        if seen is None:
            seen = Seen(key, program_digest(key))
            self._rows[key] = self.programs[seen.row] = seen
            if len(self.programs) > _MOST_PROGRAMS:
                self._make_room()
        else:
            self.programs.move_to_end(seen.row)
        seen.ended_s = None
        seen.model = call.model or seen.model
        seen.calls.add(call)
        self._open[call] = seen
        self._touch(seen)

    def opened(self, call: Call) -> None:
        """The program has a replica."""
        seen = self._open.get(call)
        if seen is not None:
            seen.replica = call.replica
            if call.program.calls <= 1 and not call.identity.ephemeral:
                self.happened("began", call.key)
            self._touch(seen)

    def sending(self, call: Call) -> None:
        """The engine gets the call."""
        self._note(call)

    def head(self, call: Call) -> None:
        """The answer has begun."""
        self._note(call)

    def closed(self, call: Call) -> None:
        """The number of tokens is known."""
        seen, usage = self._open.get(call), call.usage
        if seen is not None and usage is not None and usage.prompt_tokens:
            seen.context = usage.prompt_tokens + usage.output_tokens

    def ended(self, call: Call) -> None:
        """The request is over."""
        seen = self._open.pop(call, None)
        if seen is not None:
            seen.calls.discard(call)
            if call.identity.ephemeral and not seen.calls:
                self._drop(seen)
            self._touch(seen)

    def program_ended(self, key: ProgramKey, why: str = "") -> None:
        """A program has ended."""
        seen = self._rows.get(key)
        if seen is not None and seen.ended_s is None:
            seen.ended_s = time()
            # The first to go.
            self.programs.move_to_end(seen.row, last=False)
            self.happened("ended", key, why)
            self._touch(seen)

    def look_at(self, registry: Registry) -> None:
        """Notice replicas that were lost or are back."""
        now = {replica.name: replica.circuit.healthy for replica in registry}
        for name, healthy in now.items():
            if self._healthy.get(name, healthy) != healthy:
                self.happened("back" if healthy else "lost", None, f"replica {name}")
        self._healthy = now

    def happened(self, what: str, key: ProgramKey | None, text: str = "") -> None:
        """Add an event."""
        self._count += 1
        self.events.append(Event(self._count, time(), what, key, text))

    async def stop(self, seen: Seen, lifecycle: Lifecycle) -> int:
        """End a program, and abort its calls through this gateway. Its calls are refused for five
        minutes. Returns the number of aborted calls. Raises TableUnavailable.
        """
        now_s, calls = time(), list(seen.calls)
        self._stopped[seen.key] = now_s + _STOPPED_S
        self._stopped.move_to_end(seen.key)
        if len(self._stopped) > _MOST_STOPPED:
            self._stopped.popitem(last=False)
        error = errors.of("program_stopped").message
        clients = [call.client for call in calls if call.client is not None]
        count = sum([client.end(ProgramStopped(error)) for client in clients])
        self.happened("stopped", seen.key, f"{count} calls aborted")
        if await lifecycle.end(seen.key, now_s) is None and not seen.calls:
            self.program_ended(seen.key)
        self._touch(seen)
        return count

    def forget_ended(self, before_s: float) -> list[str]:
        """Drop programs that ended before a time. Returns their rows."""
        gone = []
        for seen in list(self.programs.values()):
            if seen.ended_s is None:
                break
            if seen.ended_s < before_s and not seen.calls:
                gone.append(seen)
        for seen in gone:
            self._drop(seen)
        return [seen.row for seen in gone]

    def _note(self, call: Call) -> None:
        if self.watched:
            seen = self._open.get(call)
            if seen is not None:
                self.changed.add(seen.row)

    def _touch(self, seen: Seen) -> None:
        if self.watched:
            self.changed.add(seen.row)

    def _drop(self, seen: Seen) -> None:
        del self.programs[seen.row], self._rows[seen.key]

    def _make_room(self) -> None:
        idle: Iterable[Any] = (seen for seen in self.programs.values() if not seen.calls)
        seen = next(iter(idle), None)
        if seen is not None:
            self._drop(seen)
            self._touch(seen)


def _request(call: Call, since_s: float) -> Request:
    claim, placed = call.claim, call.placed
    waits = claim is not None and not claim.sent_s
    return Request(
        since_s,
        call.overhead_s > 0 and not waits,
        call.first_byte_s > 0,
        0 if placed is None else placed.prompt_tokens,
        claim.ahead if claim is not None and waits else 0,
        call.replica,
    )
