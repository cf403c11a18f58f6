"""Runs batches: sends their requests in a window, a few at once, and writes the results.

Each result is on disk before the next request of its place is sent. A batch that a stop interrupted
continues after the next start: requests without a result are sent again, at most one window.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, time
from typing import Final

import msgspec

from weft_gateway.calls.call import Plan
from weft_gateway.calls.client import Disconnect
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.engine.errors import ClientGone
from weft_gateway.model import ProgramKey
from weft_gateway.model.slo import Ask, Goal, Scope
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.runs.batch_active import Active
from weft_gateway.runs.batch_calls import Request, Submit
from weft_gateway.runs.batch_files import BatchFiles
from weft_gateway.runs.batch_input import InputError
from weft_gateway.runs.batch_results import CANCELLED, EXPIRED
from weft_gateway.runs.records import Batch, LineError, Status
from weft_gateway.runs.sender import Sender, abort
from weft_gateway.runs.store import Store
from weft_gateway.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_TICK_S: Final = 0.1
_SAVE_S: Final = 1.0
_STOP_S: Final = 5.0
_DISK_PAUSE_S: Final = 5.0


@dataclass(slots=True, eq=False)
class BatchRunner:
    """Runs the batches of a store. submit: makes one call."""

    store: Store
    files: BatchFiles
    submit: Submit
    sender: Sender
    lifecycle: Lifecycle
    metrics: Metrics
    active: dict[str, Active] = field(default_factory=dict, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _beginning: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self.sender.before.append(self._end_some)

    def begin(self, batch: Batch) -> None:
        """Check the input of a batch and run it, in the background."""
        task = asyncio.get_running_loop().create_task(self._begin(batch))
        self._beginning[batch.id] = task
        task.add_done_callback(lambda _: self._beginning.pop(batch.id, None))

    def known(self, batch_id: str) -> Batch | None:
        """Return the present state of a batch in progress. It is stored first: after a restart, no
        count is lower than one that a client has seen.
        """
        active = self.active.get(batch_id)
        if active is None:
            return None
        if active.dirty:
            active.dirty = not self.store.saved(active.batch)
        return active.batch

    def cancel(self, batch_id: str) -> None:
        """Stop sending. Calls in flight finish, and the batch ends after the last of them. A batch
        that is not in progress here is cancelled when it begins: the store knows it.
        """
        active = self.active.get(batch_id)
        if active is not None and active.batch.status is Status.IN_PROGRESS:
            active.stop = active.stop or CANCELLED
            active.batch.enter(Status.CANCELLING)
            self.store.saved(active.batch)
            self.sender.dispatch()

    def follow(self) -> None:
        """Begin the batches that this process did not create, and cancel those that another one
        has cancelled.
        """
        for batch in self.store.unfinished(Batch) if self.store.changed() else ():
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
            self.sender.dispatch()
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
                active.dirty = not self.store.saved(active.batch)
        self.metrics.batch_left.set(left)

    async def aclose(self) -> None:
        """Abort the calls in flight, which are sent again after the next start."""
        await self.sender.aclose()
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
        active = None
        while active is None:
            try:
                async with self._one:
                    await self.sender.look()
                    # No wait follows: a cancellation is either in the store that this reads, or
                    # finds an active batch.
                    active = await self.files.open(batch, partial(self._serve, batch.id))
            except InputError as error:
                await self._failed(batch, error.found)
                return
            except FileNotFoundError as error:
                what = f"The input file cannot be read: {error.strerror}."
                await self._failed(batch, [LineError("input_unreadable", what)])
                return
            except (OSError, sqlite3.Error) as error:
                # It may pass. A failed batch would lose the results that exist.
                log.error("batch %s: its files cannot be opened: %s", batch.id, error)
                await asyncio.sleep(_DISK_PAUSE_S)
        self.active[batch.id] = active
        self.sender.sources[batch.id] = active
        self.store.saved(batch)
        self.sender.dispatch()

    async def _failed(self, batch: Batch, found: list[LineError]) -> None:
        batch.errors = found
        await self._ended(batch, Status.FAILED)

    async def _ended(self, batch: Batch, status: Status) -> None:
        """Store the end, once the disk takes it."""
        batch.enter(status)
        while not self.store.saved(batch):  # noqa: ASYNC110
            await asyncio.sleep(_DISK_PAUSE_S)
        self.metrics.batches.labels(batch.status.value).inc()

    # Sending

    def _end_some(self) -> None:
        """Expire batches, and end those that are over."""
        wall_s = time()
        for active in tuple(self.active.values()):
            if not active.stop and not active.over and active.batch.expires_s <= wall_s:
                active.stop = EXPIRED
                abort(active)
            if active.over and not active.ending:
                active.ending = True
                task = asyncio.get_running_loop().create_task(self._end(active))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _serve(self, batch_id: str, request: int, replica: str, client: Disconnect) -> int:
        """Make one call and write its result; see `Source.serve`."""
        active = self.active[batch_id]
        batch = active.batch
        try:
            custom_id, body = active.read(request)
            left_s = max(1.0, batch.expires_s - batch.created_s)
            ask = Ask(Goal("", Scope.PROGRAM, left_s), explicit=True)
            plan = Plan(replica, active.service_s, ask)
            name = f"line-{request + 1}"
            asked = Request(batch.tenant, batch.endpoint, batch.id, name, body, plan)
            found = await self.submit(asked, client)
            written = active.answered(request, custom_id, found, monotonic())
        except ClientGone:
            return 0
        except (OSError, msgspec.MsgspecError) as error:
            log.error("batch %s, request %d: %s", batch.id, request + 1, error)
            active.again(request, monotonic() + _DISK_PAUSE_S)
            return 0
        if written:
            result = "succeeded" if found.answer.good else "failed"
            self.metrics.batch_requests.labels(result).inc()
            self.metrics.batch_requests.labels("copied").inc(written - 1)
        else:
            self.metrics.batch_requests.labels("repeated").inc()
        usage = found.usage
        return 0 if usage is None else usage.prompt_tokens + usage.output_tokens

    # Ending

    async def _end(self, active: Active) -> None:
        """Write the results of requests that were not sent, and make the files available."""
        batch = active.batch
        try:
            shown = batch.status
            batch.enter(Status.FINALIZING)
            if active.stop:
                batch.status = shown
            self.store.saved(batch)
            await self.files.end(active)
        except (OSError, msgspec.MsgspecError, sqlite3.Error) as error:
            log.error("batch %s: its results cannot be written: %s", batch.id, error)
            await asyncio.sleep(_DISK_PAUSE_S)
            active.ending = False
            return
        status = {EXPIRED: Status.EXPIRED, CANCELLED: Status.CANCELLED}
        await self._ended(batch, status.get(active.stop, Status.COMPLETED))
        del self.active[batch.id]
        del self.sender.sources[batch.id]
        active.close()
        with suppress(TableUnavailable):
            await self.lifecycle.end(ProgramKey(batch.tenant, batch.id), time())
