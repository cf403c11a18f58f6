"""Calls of clients that can wait (the hint `batch`): they use the window of batches.

A call passes at once while no other client uses the replicas. Otherwise it waits until the window
has room, so that prompts of many such calls do not delay other clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Final

from weft_gateway.calls.call import Call, Plan
from weft_gateway.calls.client import Disconnect
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import BY_PATH, Endpoint
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.programs.table import ProcessTable
from weft_gateway.runs.sender import Sender, serves

# A call waits at most this long, seconds: clients have timeouts. The engine ranks it then.
_MOST_S: Final = 60.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call that the window counts once it is sent. wanted: its replica, "" for any. sent: holds
    the replica. over: the call has ended.
    """

    call: Call
    number: int
    wanted: str
    queue: _Queue
    sent: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    over: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class _Queue:
    """The waiting calls of one tenant: a source of the sender. emptied: called after the end of the
    last call.
    """

    def __init__(self, tenant: str, emptied: Callable[[], None]) -> None:
        self.tenant = tenant
        self._emptied = emptied
        self.in_flight: dict[int, Disconnect] = {}
        self._sent: dict[int, _Waiting] = {}
        # By wanted replica and model: calls that differ in nothing else are sent in order.
        self._lines: dict[tuple[str, str], deque[_Waiting]] = {}

    def add(self, waiting: _Waiting) -> None:
        """Add a call."""
        self._lines.setdefault((waiting.wanted, waiting.call.model), deque()).append(waiting)

    def end(self, waiting: _Waiting) -> None:
        """A call has ended, sent or not."""
        if waiting.sent.done():
            waiting.over.set_result(None)
        else:
            self._remove(waiting)
            self._tidy()

    def _tidy(self) -> None:
        if not self._lines and not self._sent:
            self._emptied()

    def _remove(self, waiting: _Waiting) -> None:
        place = waiting.wanted, waiting.call.model
        line = self._lines[place]
        line.remove(waiting)
        if not line:
            del self._lines[place]

    def take(self, replica: Replica, replicas: Sequence[Replica], now_s: float) -> int | None:
        """Return the oldest call that wants this replica, any, or one that takes no calls now."""
        others = {one.name for one in replicas} - {replica.name}
        lines = [
            line
            for (wanted, model), line in self._lines.items()
            if wanted not in others and serves(replica, model)
        ]
        if not lines:
            return None
        waiting = min(lines, key=lambda line: line[0].number)[0]
        self._remove(waiting)
        self._sent[waiting.number] = waiting
        waiting.sent.set_result(replica.name)
        return waiting.number

    def size(self, number: int) -> int:
        """Return the bytes of a call's body."""
        return self._sent[number].call.size

    async def serve(self, number: int, replica: str, client: Disconnect) -> int:
        """Wait for the end of a call, which its client's connection serves. Its tokens count
        there.
        """
        try:
            await client.wait(self._sent[number].over)
        except ClientGone:
            pass
        finally:
            del self._sent[number]
            self._tidy()
        return 0


class PatientObserver(CallObserver):
    """Holds calls with the hint `batch`. It comes last, so that all else about a call is known."""

    def __init__(self, sender: Sender, registry: Registry, table: ProcessTable) -> None:
        self._sender = sender
        self._registry = registry
        self._table = table
        self._numbers = count()
        self._queues: dict[str, _Queue] = {}
        self._waiting: dict[Call, _Waiting] = {}
        # The replica of each call that was not held.
        self._passed: dict[Call, str] = {}

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe the endpoints for clients."""
        return BY_PATH.get(endpoint.path) is endpoint

    def held(self, call: Call) -> Awaitable[None] | None:
        """Hold a call that can wait if other clients use the replicas that it may get."""
        if not call.hints.batch:
            return None
        able = [one.name for one in self._registry.able() if serves(one, call.model)]
        wanted = self._wanted(call, able)
        if not any(map(self._sender.is_shared, [wanted] if wanted else able)):
            return None
        queue = self._queue(call.caller.tenant)
        waiting = self._waiting[call] = _Waiting(call, next(self._numbers), wanted, queue)
        queue.add(waiting)
        self._sender.dispatch()
        return self._wait(waiting)

    def _queue(self, tenant: str) -> _Queue:
        """Return the queue of a tenant, which is a source of the sender while it has calls."""
        queue = self._queues.get(tenant)
        if queue is None:
            name = f"patient {tenant}"

            def emptied() -> None:
                del self._queues[tenant]
                del self._sender.sources[name]

            queue = self._queues[tenant] = self._sender.sources[name] = _Queue(tenant, emptied)
        return queue

    def _wanted(self, call: Call, able: Sequence[str]) -> str:
        """Return the replica that the client names, otherwise the home of its program."""
        program = self._table.peek(call.key)
        names = (call.hints.replica or "", "" if program is None else program.home)
        return next((name for name in names if name in able), "")

    async def _wait(self, waiting: _Waiting) -> None:
        begun_s = monotonic()
        call = waiting.call
        try:
            async with asyncio.timeout(_MOST_S):
                # A limit of the tenant may end without an event of the sender.
                while not waiting.sent.done():
                    await asyncio.wait([waiting.sent], timeout=1.0)
                    self._sender.dispatch()
            call.plan = Plan(waiting.sent.result(), 0.0)
        except TimeoutError:
            self._end(call)
        finally:
            call.held_s += monotonic() - begun_s

    def opened(self, call: Call) -> None:
        """Count a call that was not held, perhaps at another replica than before."""
        if call.hints.batch and call not in self._waiting:
            self._leave(call)
            self._passed[call] = call.replica
            self._sender.joined(call.replica)

    def ended(self, call: Call) -> None:
        """Free the call's place in the window."""
        if call.hints.batch:
            self._leave(call)
            self._end(call)

    def _leave(self, call: Call) -> None:
        replica = self._passed.pop(call, None)
        if replica is not None:
            self._sender.joined(replica, -1)

    def _end(self, call: Call) -> None:
        waiting = self._waiting.pop(call, None)
        if waiting is not None:
            waiting.queue.end(waiting)
