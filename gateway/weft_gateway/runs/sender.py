"""Sends the calls that the gateway makes in the background, those of batches, and calls of clients
that can wait (`runs.patient`).

They share one window per replica, which leaves room for the calls of clients, and the limits of
their tenants. No call of a source is sent before the window allows it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from weft_gateway.calls.client import Disconnect
from weft_gateway.calls.features.foreground import ForegroundObserver
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.model.limits import TenantRules
from weft_gateway.policies.batch_window import apart_s, by_use, credit, is_shared
from weft_gateway.policies.token_bucket import MINUTE_S
from weft_gateway.programs.table import ProcessTable
from weft_gateway.tenants import Tenants

# Bodies of running calls, bytes. A longer one is sent alone.
_MOST_BYTES: Final = 64 << 20
# Between two readings of the counts, seconds.
_LOOK_S: Final = 0.5
_STOP_S: Final = 5.0
# Weight of the last call in the mean duration of a replica's calls.
_RECENT: Final = 0.1
# The part of its tenant's limits that background calls use, so that other calls are not refused.
_PART: Final = 0.5


class Source(Protocol):
    """Calls of one tenant that wait to be sent."""

    @property
    def tenant(self) -> str:
        """The tenant that the calls belong to."""
        ...

    @property
    def in_flight(self) -> dict[int, Disconnect]:
        """The running calls by number. The sender adds and removes them."""
        ...

    def take(self, replica: Replica, replicas: Sequence[Replica], now_s: float) -> int | None:
        """Return the next call for a replica, None if none can be sent now. replicas: all that take
        calls. now_s: monotonic clock.
        """
        ...

    def size(self, number: int) -> int:
        """Return the bytes of a call's body."""
        ...

    async def serve(self, number: int, replica: str, client: Disconnect) -> int:
        """Make a call. Never raises. Returns its tokens, 0 if they are not known."""
        ...


@dataclass(slots=True, eq=False)
class Sender:
    """The window and the limits. default_calls: in flight at a replica that does not report its
    slots.
    """

    registry: Registry
    table: ProcessTable
    tenants: Tenants
    foreground: ForegroundObserver
    default_calls: int
    sources: dict[str, Source] = field(default_factory=dict, init=False)
    # Called before each dispatch.
    before: list[Callable[[], None]] = field(default_factory=list, init=False)
    # Calls in flight by replica and by tenant, and the time of each tenant's next call.
    _at: Counter[str] = field(default_factory=Counter, init=False)
    _of: Counter[str] = field(default_factory=Counter, init=False)
    _next: dict[str, float] = field(default_factory=dict, init=False)
    # By replica: the begin of the last call and the mean duration of calls, seconds.
    _begun_s: dict[str, float] = field(default_factory=dict, init=False)
    _took_s: dict[str, float] = field(default_factory=dict, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _bytes: int = field(default=0, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _closed: bool = field(default=False, init=False)
    # The last reading of the counts for calls of other gateways, and whether it is in progress.
    _looked_s: float = field(default=-_LOOK_S, init=False)
    _looking: bool = field(default=False, init=False)

    def dispatch(self) -> None:
        """Send what the window allows."""
        if self._closed:
            return
        for hook in self.before:
            hook()
        if not self.sources:
            return
        now_s = monotonic()
        replicas = self.registry.able()
        credits: dict[str, int] = {}
        # The times at which shared replicas take the next call.
        apart: dict[str, float] = {}
        for replica in replicas:
            others, since_s = self._others(replica.name)
            if others:
                self._look_again(now_s)
            calls = credit(replica.slots, self.default_calls, others, since_s)
            credits[replica.name] = calls
            if is_shared(others, since_s):
                apart[replica.name] = apart_s(self._took_s.get(replica.name, 0.0), calls)
        by_name = {replica.name: replica for replica in replicas}
        waits: dict[str, float] = {}
        sent = True
        while sent:
            names = by_use(self._at, credits)
            next_s = {one: self._begun_s.get(one, 0.0) + apart.get(one, 0.0) for one in names}
            waits = {one: at_s - now_s for one, at_s in next_s.items() if at_s > now_s}
            ready = [one for one in names if one not in waits]
            sent = any(self._send_next(by_name[one], replicas, now_s) for one in ready)
        if waits and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(waits.values()), self._again)

    def _others(self, replica: str) -> tuple[int, float]:
        """Return the calls of others in flight at a replica, and the seconds since the last of them
        began.
        """
        in_flight = self.table.in_flight().get(replica, 0)
        return max(0, in_flight - self._at[replica]), self.foreground.since_s(replica)

    def is_shared(self, replica: str) -> bool:
        """Whether other calls use a replica, or are expected there."""
        return is_shared(*self._others(replica))

    def joined(self, replica: str, calls: int = 1) -> None:
        """Count calls in flight that were sent without the window, because the replica was not
        shared. calls: -1 for one that has ended.
        """
        self._at[replica] += calls
        if calls < 0:
            self.dispatch()

    def _again(self) -> None:
        self._timer = None
        self.dispatch()

    async def look(self) -> None:
        """Read the calls of all gateways before a source begins: clients of other gateways are in
        the foreground, too. Later, each call reads them.
        """
        before = Counter(self._at)
        for name, count in (await self.table.count()).items():
            if count > max(before[name], self._at[name]):
                self.foreground.seen(name)

    def _look_again(self, now_s: float) -> None:
        """Read the counts. Replies of overlapping calls may arrive in another order than Redis sent
        them, so an old count of own calls can look like calls of other gateways.
        """
        if self._looking or now_s - self._looked_s < _LOOK_S:
            return
        self._looking = True

        async def look() -> None:
            try:
                await self.look()
            finally:
                self._looking = False
                self._looked_s = monotonic()

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is None:
                self.dispatch()

        task = asyncio.get_running_loop().create_task(look())
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def aclose(self) -> None:
        """Abort the calls in flight, and send no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for source in self.sources.values():
            abort(source)
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=_STOP_S)
            for task in left:
                task.cancel()

    def _send_next(self, replica: Replica, replicas: Sequence[Replica], now_s: float) -> bool:
        """Send one request to a replica, of the tenant that has the fewest calls in flight by its
        weight, and of its source that has the fewest: a small batch does not wait for the end of a
        large one. Returns whether there was one.
        """
        if self._bytes >= _MOST_BYTES:
            return False
        ranked = sorted(
            self.sources.values(),
            key=lambda one: (
                self._of[one.tenant] / self.tenants.weight(one.tenant),
                len(one.in_flight),
            ),
        )
        for source in ranked:
            rules = self.tenants.of(source.tenant)
            if not self._may_send(source.tenant, rules, now_s):
                continue
            number = source.take(replica, replicas, now_s)
            if number is not None:
                self._pace(source.tenant, rules.requests_per_minute, 1, now_s)
                self._begun_s[replica.name] = now_s
                self._send(source, number, replica.name)
                return True
        return False

    def _may_send(self, tenant: str, rules: TenantRules, now_s: float) -> bool:
        limit = rules.calls_in_flight
        if limit and self._of[tenant] >= max(1, int(_PART * limit)):
            return False
        return self._next.get(tenant, 0.0) <= now_s

    def _pace(self, tenant: str, per_minute: int, amount: float, now_s: float) -> None:
        """Delay the tenant's next call, so that the background uses a part of its rate."""
        if per_minute and amount:
            pause_s = amount * MINUTE_S / (_PART * per_minute)
            self._next[tenant] = max(self._next.get(tenant, 0.0), now_s) + pause_s

    def _send(self, source: Source, number: int, replica: str) -> None:
        client = source.in_flight[number] = Disconnect(_never)
        tenant, size = source.tenant, source.size(number)
        begun_s = monotonic()
        self._at[replica] += 1
        self._of[tenant] += 1
        self._bytes += size

        async def serve() -> None:
            tokens = await source.serve(number, replica, client)
            per_minute = self.tenants.of(tenant).tokens_per_minute
            self._pace(tenant, per_minute, tokens, monotonic())

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            del source.in_flight[number]
            took_s = monotonic() - begun_s
            mean_s = self._took_s.get(replica, took_s)
            self._took_s[replica] = mean_s + _RECENT * (took_s - mean_s)
            self._at[replica] -= 1
            self._of[tenant] -= 1
            self._bytes -= size
            self.dispatch()

        task = asyncio.get_running_loop().create_task(serve())
        self._tasks.add(task)
        task.add_done_callback(ended)


def serves(replica: Replica, model: str) -> bool:
    """Whether a replica serves a model, "" for any. One with unknown models may serve it."""
    return not model or not replica.served or model in replica.served


def abort(source: Source) -> None:
    """Abort all calls of a source that are in flight."""
    for client in tuple(source.in_flight.values()):
        end(client)


def end(client: Disconnect) -> None:
    """Abort one call."""
    client.gone = True
    client.end(ClientGone())


async def _never() -> MutableMapping[str, object]:
    """Receive nothing: only the gateway ends a background call."""
    never: asyncio.Future[MutableMapping[str, object]]
    never = asyncio.get_running_loop().create_future()
    return await never
