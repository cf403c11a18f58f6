"""What the live view needs to know: the programs that this gateway serves with their open calls,
and what happened. It also stops programs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from time import time
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

_MOST_PROGRAMS: Final = 4096
_MOST_EVENTS: Final = 200
# How long a stopped program's calls are refused, seconds, and how many programs.
_STOPPED_S: Final = 300.0
_MOST_STOPPED: Final = 512


@dataclass(slots=True, eq=False)
class Seen:
    """A program with calls through this gateway. row: its opaque name, which engines know too.
    context: tokens of its last call. since_s: the begin of its first open call, Unix time. ended_s:
    None while it is alive.
    """

    key: ProgramKey
    row: str
    model: str = ""
    replica: str = ""
    context: int = 0
    since_s: float = 0.0
    ended_s: float | None = None
    calls: set[Call] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class LiveObserver(CallObserver):
    """Follows programs. programs: by row, those that ended first, then the longest idle first."""

    programs: OrderedDict[str, Seen] = field(default_factory=OrderedDict)
    # Each with its program's tenant, None for an event of a replica, which administrators see.
    _events: deque[tuple[str | None, dict[str, Any]]] = field(
        default_factory=lambda: deque(maxlen=_MOST_EVENTS)
    )
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
        row = program_digest(call.key)
        seen = self.programs.get(row)
        if seen is None:
            seen = self.programs[row] = Seen(call.key, row)
            if len(self.programs) > _MOST_PROGRAMS:
                idle = (name for name, one in self.programs.items() if not one.calls)
                self.programs.pop(next(idle))
        else:
            self.programs.move_to_end(row)
        seen.since_s = seen.since_s if seen.calls else time()
        seen.ended_s = None
        seen.model = call.model or seen.model
        seen.calls.add(call)
        self._open[call] = seen

    def opened(self, call: Call) -> None:
        """The program has a replica."""
        seen = self._open.get(call)
        if seen is not None:
            seen.replica = call.replica
            if call.program.calls <= 1 and not call.identity.ephemeral:
                self.happened("began", call.key)

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
                self.programs.pop(seen.row, None)

    def program_ended(self, key: ProgramKey, why: str = "") -> None:
        """A program has ended."""
        seen = self.programs.get(program_digest(key))
        if seen is not None and seen.ended_s is None:
            seen.ended_s = time()
            # The first to go.
            self.programs.move_to_end(seen.row, last=False)
            self.happened("ended", key, why)

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
        tenant, session = (None, None) if key is None else key
        event = {
            "number": self._count, "at": time(), "what": what, "session": session, "text": text,
        }  # fmt: skip
        self._events.append((tenant, event))

    def after(self, number: int, tenant: str | None, admin: bool) -> list[dict[str, Any]]:
        """Return the events after a number that a viewer may see, the oldest first. tenant: None
        for those of all programs.
        """
        if number >= self._count:
            return []
        return [
            event
            for of, event in self._events
            if event["number"] > number and (admin if of is None else tenant in (None, of))
        ]

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
        return count

    def forget_ended(self, before_s: float) -> None:
        """Drop programs that ended before a time."""
        gone = [
            row
            for row, seen in self.programs.items()
            if not seen.calls and seen.ended_s is not None and seen.ended_s < before_s
        ]
        for row in gone:
            del self.programs[row]
