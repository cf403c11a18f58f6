"""Runs batches: sends their requests in a window, a few at once, and writes the results.

Each result is on disk before the next request of its place is sent. A batch that a stop interrupted
continues after the next start: requests without a result are sent again, at most one window.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Final

import msgspec

from weft_gateway.calls.call import Plan
from weft_gateway.calls.client import Disconnect
from weft_gateway.calls.features.foreground import ForegroundObserver
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.model import ProgramKey
from weft_gateway.model.limits import TenantRules
from weft_gateway.model.slo import Ask, Goal, Scope
from weft_gateway.policies.batch_window import credit
from weft_gateway.policies.token_bucket import MINUTE_S
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.runs.batch_active import Active
from weft_gateway.runs.batch_calls import Request, Submit
from weft_gateway.runs.batch_files import BatchFiles
from weft_gateway.runs.batch_input import InputError
from weft_gateway.runs.batch_results import (
    CANCELLED,
    EXPIRED,
)
from weft_gateway.runs.batch_store import (
    Batch,
    BatchStore,
    LineError,
    Status,
)
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.tenants import Tenants

log = logging.getLogger(__name__)

_TICK_S: Final = 0.1
_SAVE_S: Final = 1.0
# Bodies of running calls, bytes. A longer one is sent alone.
_MOST_BYTES: Final = 64 << 20
_STOP_S: Final = 5.0
_DISK_PAUSE_S: Final = 5.0
# The part of its tenant's limits that all batches use, so that other calls are not refused.
_PART: Final = 0.5


@dataclass(slots=True, eq=False)
class BatchRunner:
    """Runs the batches of a store. submit: makes one call. default_calls: in flight at a replica
    that does not report its slots.
    """

    store: BatchStore
    files: BatchFiles
    submit: Submit
    registry: Registry
    table: ProcessTable
    lifecycle: Lifecycle
    tenants: Tenants
    foreground: ForegroundObserver
    metrics: Metrics
    default_calls: int
    active: dict[str, Active] = field(default_factory=dict, init=False)
    # Calls in flight by replica and by tenant, and the time of each tenant's next call.
    _at: Counter[str] = field(default_factory=Counter, init=False)
    _of: Counter[str] = field(default_factory=Counter, init=False)
    _next: dict[str, float] = field(default_factory=dict, init=False)
    _bytes: int = field(default=0, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _beginning: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _closed: bool = field(default=False, init=False)

    def begin(self, batch: Batch) -> None:
        """Check the input of a batch and run it, in the background."""
        task = asyncio.get_running_loop().create_task(self._begin(batch))
        self._beginning[batch.id] = task
        task.add_done_callback(lambda _: self._beginning.pop(batch.id, None))

    def known(self, batch_id: str) -> Batch | None:
        """Return the present state of a batch in progress."""
        active = self.active.get(batch_id)
        return None if active is None else active.batch

    def cancel(self, batch_id: str) -> None:
        """Stop sending. Calls in flight finish, and the batch ends after the last of them. A batch
        that is not in progress here is cancelled when it begins: the store knows it.
        """
        active = self.active.get(batch_id)
        if active is not None and active.batch.status is Status.IN_PROGRESS:
            active.stop = active.stop or CANCELLED
            _enter(active.batch, Status.CANCELLING)
            self.store.save(active.batch)
            self.dispatch()

    def follow(self) -> None:
        """Begin the batches that this process did not create, and cancel those that another one
        has cancelled.
        """
        for batch in self.store.unfinished() if self.store.changed() else ():
            if batch.id in self.active:
                if batch.status is Status.CANCELLING:
                    self.cancel(batch.id)
            elif batch.id not in self._beginning:
                log.info("batch %s begins or continues here", batch.id)
                self.begin(batch)

    async def run(self) -> None:
        """Run all batches of the store until cancelled. For its owner."""
        saved_s = monotonic()
        while True:
            self.follow()
            self.dispatch()
            if monotonic() - saved_s >= _SAVE_S:
                saved_s = monotonic()
                self.save()
            await asyncio.sleep(_TICK_S)

    def save(self) -> None:
        """Write the counts of batches in progress."""
        left = 0
        for active in self.active.values():
            left += active.batch.total - active.batch.completed - active.batch.failed
            if active.dirty:
                active.dirty = False
                self.store.save(active.batch)
        self.metrics.batch_left.set(left)

    async def aclose(self) -> None:
        """Abort the calls in flight, which are sent again after the next start."""
        self._closed = True
        for active in self.active.values():
            for client in tuple(active.in_flight.values()):
                client.gone = True
                client.end(ClientGone())
        for task in tuple(self._beginning.values()):
            task.cancel()
        waiting = [*self._tasks, *self._beginning.values()]
        if waiting:
            _, left = await asyncio.wait(waiting, timeout=_STOP_S)
            for task in left:
                task.cancel()
        self.save()
        for active in self.active.values():
            active.close()
        self.active.clear()

    # Beginning

    async def _begin(self, batch: Batch) -> None:
        """Index the input; continue after the results that exist. Never raises."""
        try:
            async with self._one:
                active = await self.files.open(batch)
        except InputError as error:
            self._failed(batch, error.found)
        except OSError as error:
            log.error("batch %s: its input cannot be read: %s", batch.id, error)
            what = f"The input file cannot be read: {error.strerror}."
            self._failed(batch, [LineError("input_unreadable", what)])
        else:
            self.active[batch.id] = active
            self.store.save(batch)
            self.dispatch()

    def _failed(self, batch: Batch, found: list[LineError]) -> None:
        batch.errors = found
        _enter(batch, Status.FAILED)
        self.store.save(batch)
        self.metrics.batches.labels(batch.status.value).inc()

    # Sending

    def dispatch(self) -> None:
        """Send what the window allows, and end the batches that are over."""
        if self._closed:
            return
        now_s, wall_s = monotonic(), time()
        for active in tuple(self.active.values()):
            if not active.stop and active.batch.expires_s <= wall_s:
                self._expire(active)
            if active.over and not active.ending:
                active.ending = True
                self._spawn(self._end(active))
        if not self.active:
            return
        replicas = self.registry.able()
        in_flight = self.table.in_flight()
        for replica in replicas:
            own = self._at[replica.name]
            others = max(0, in_flight.get(replica.name, 0) - own)
            if others:
                # Clients of other gateways, too.
                self.foreground.seen(replica.name)
            since_s = self.foreground.since_s(replica.name)
            free = credit(replica.slots, self.default_calls, others, since_s) - own
            while free > 0 and self._send_next(replica, replicas, now_s):
                free -= 1

    def _send_next(self, replica: Replica, replicas: Sequence[Replica], now_s: float) -> bool:
        """Send one request to a replica, of the tenant that has the fewest calls in flight by its
        weight. Returns whether there was one.
        """
        if self._bytes >= _MOST_BYTES:
            return False
        ranked = sorted(
            self.active.values(),
            key=lambda one: self._of[one.batch.tenant] / self.tenants.weight(one.batch.tenant),
        )
        for active in ranked:
            batch, model = active.batch, active.index.model
            if model and replica.served and model not in replica.served:
                continue
            rules = self.tenants.of(batch.tenant)
            if not self._may_send(batch.tenant, rules, now_s):
                continue
            able = [one.name for one in replicas if not model or model in one.served]
            request = active.take(replica.name, able, now_s)
            if request is not None:
                self._pace(batch.tenant, rules.requests_per_minute, 1, now_s)
                self._send(active, request, replica.name)
                return True
        return False

    def _may_send(self, tenant: str, rules: TenantRules, now_s: float) -> bool:
        limit = rules.calls_in_flight
        if limit and self._of[tenant] >= max(1, int(_PART * limit)):
            return False
        return self._next.get(tenant, 0.0) <= now_s

    def _pace(self, tenant: str, per_minute: int, amount: float, now_s: float) -> None:
        """Delay the tenant's next call, so that its batches use a part of its rate."""
        if per_minute and amount:
            pause_s = amount * MINUTE_S / (_PART * per_minute)
            self._next[tenant] = max(self._next.get(tenant, 0.0), now_s) + pause_s

    def _send(self, active: Active, request: int, replica: str) -> None:
        client = active.in_flight[request] = Disconnect(_never)
        size = active.index.sizes[request]
        self._at[replica] += 1
        self._of[active.batch.tenant] += 1
        self._bytes += size
        task = self._spawn(self._serve(active, request, replica, client))

        def ended(_: asyncio.Task[None]) -> None:
            del active.in_flight[request]
            self._at[replica] -= 1
            self._of[active.batch.tenant] -= 1
            self._bytes -= size
            self.dispatch()

        task.add_done_callback(ended)

    async def _serve(self, active: Active, request: int, replica: str, client: Disconnect) -> None:
        """Make one call and write its result. Never raises."""
        batch = active.batch
        try:
            custom_id, body = active.read(request)
            left_s = max(1.0, batch.expires_s - batch.created_s)
            ask = Ask(Goal("", Scope.PROGRAM, left_s), explicit=True)
            plan = Plan(replica, active.service_s, ask)
            name = f"line-{request + 1}"
            asked = Request(batch.tenant, batch.endpoint, batch.id, name, body, plan)
            found = await self.submit(asked, client)
            now_s = monotonic()
            written = active.answered(request, custom_id, found, now_s)
        except ClientGone:
            return
        except (OSError, msgspec.MsgspecError) as error:
            log.error("batch %s, request %d: %s", batch.id, request + 1, error)
            active.again(request, monotonic() + _DISK_PAUSE_S)
            return
        if found.report is not None:
            rules = self.tenants.of(batch.tenant)
            tokens = found.report.prompt_tokens + found.report.output_tokens
            self._pace(batch.tenant, rules.tokens_per_minute, tokens, now_s)
        if written:
            result = "succeeded" if found.answer.good else "failed"
            self.metrics.batch_requests.labels(result).inc()
            self.metrics.batch_requests.labels("copied").inc(written - 1)
        else:
            self.metrics.batch_requests.labels("repeated").inc()

    # Ending

    def _expire(self, active: Active) -> None:
        active.stop = EXPIRED
        for client in tuple(active.in_flight.values()):
            client.gone = True
            client.end(ClientGone())

    async def _end(self, active: Active) -> None:
        """Write the results of requests that were not sent, and make the files available."""
        batch = active.batch
        try:
            _enter(batch, Status.FINALIZING, keep=bool(active.stop))
            self.store.save(batch)
            await self.files.end(active)
        except (OSError, msgspec.MsgspecError) as error:
            log.error("batch %s: its results cannot be written: %s", batch.id, error)
            await asyncio.sleep(_DISK_PAUSE_S)
            active.ending = False
            return
        status = {EXPIRED: Status.EXPIRED, CANCELLED: Status.CANCELLED}
        _enter(batch, status.get(active.stop, Status.COMPLETED))
        self.store.save(batch)
        del self.active[batch.id]
        active.close()
        self.metrics.batches.labels(batch.status.value).inc()
        with suppress(TableUnavailable):
            await self.lifecycle.end(ProgramKey(batch.tenant, batch.id), time())

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _enter(batch: Batch, status: Status, *, keep: bool = False) -> None:
    """Change the state. keep: only record the time, because a stopped batch shows the stop."""
    batch.times = {**batch.times, status.value: int(time())}
    if not keep:
        batch.status = status


async def _never() -> MutableMapping[str, object]:
    """Receive nothing: only the gateway ends the call of a batch."""
    never: asyncio.Future[MutableMapping[str, object]]
    never = asyncio.get_running_loop().create_future()
    return await never
