"""Runs the runs of workflows that began over HTTP: in worker processes, a few at once.

The worker decides and keeps the journal; `flow_group` makes its calls in the window of background
calls, and this module stores the state. A run that a stop interrupted continues from its journal.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.runs.batch_calls import Submit
from weft_gateway.runs.batch_store import BatchStore, StoredFile
from weft_gateway.runs.batch_store import new_id as new_file_id
from weft_gateway.runs.flow_calls import RunCalls
from weft_gateway.runs.flow_child import Child, ChildLost
from weft_gateway.runs.flow_group import End, Group, Member
from weft_gateway.runs.flow_rules import Rules
from weft_gateway.runs.flow_store import FlowStore, Run, RunError, RunStatus
from weft_gateway.runs.flow_wire import JOURNAL, OUTPUT, InputRead, Over, Progress, Start, Wrong
from weft_gateway.runs.sender import Sender
from weft_gateway.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_SAVE_S: Final = 1.0
_MOST_CALLS: Final = 256
# Time of a cancelled run to write its rows before its process is replaced, seconds.
_CANCEL_S: Final = 10.0
_ENDS_KEPT_S: Final = 60.0
# Pause before the next attempt to store the end of a run, seconds.
_AGAIN_S: Final = 2.0
# Errors that another attempt may not have: of processes, memory, open files and disks.
_PASSING: Final = (
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO,
)  # fmt: skip
# A run begins again once the disk takes this much: each attempt makes calls.
_ROOM_BYTES: Final = 1 << 20
_STOPS: Final = {
    "tokens": RunError("token_budget", "The token budget is spent."),
    "errors": RunError("error_budget", "Too many rows have failed."),
    "storage": RunError(
        "storage_limit_reached",
        "The stored files and the results of this run have reached the limit of bytes per API key. "
        "Delete files, and run the rows that are left.",
    ),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """running: processes at once. memory_bytes, stall_s: of a process. rows: of an input.
    body_bytes: of a call. keep_s: lifetime of outputs, seconds. stored_bytes: of a tenant.
    """

    running: int
    memory_bytes: int
    stall_s: float
    rows: int
    body_bytes: int
    keep_s: float
    stored_bytes: int


@dataclass(slots=True, eq=False)
class FlowRunner:
    """The runs of a store. submit: makes one call. changed: called when a run has news. ends: by
    run, the rows that have ended since the last start, twice the number, plus 1 if the row has
    failed.
    """

    store: FlowStore
    files: BatchStore
    rules: Rules
    limits: Limits
    submit: Submit
    sender: Sender
    lifecycle: Lifecycle
    metrics: Metrics
    changed: Callable[[Run], None]
    # The processes of the runs that are served.
    live: dict[str, Group] = field(default_factory=dict, init=False)
    ends: dict[str, array[int]] = field(default_factory=dict, init=False)
    _queue: dict[str, Run] = field(default_factory=dict, init=False)
    _serving: dict[str, Run] = field(default_factory=dict, init=False)
    _tasks: dict[str, asyncio.Task[bool]] = field(default_factory=dict, init=False)
    _groups: dict[Group, asyncio.Task[None]] = field(default_factory=dict, init=False)
    # Runs whose process was lost while it had several: each continues in a separate one.
    _alone: set[str] = field(default_factory=set, init=False)
    _closed: bool = field(default=False, init=False)

    def begin(self, run: Run) -> None:
        """Queue a run."""
        run.starts += 1
        self._queue[run.id] = run
        self._next()

    def known(self, run_id: str) -> Run | None:
        """Return the present state of an unfinished run."""
        return self._queue.get(run_id) or self._serving.get(run_id)

    def follow(self) -> None:
        """Begin the runs that this process did not create, and cancel those that another one has
        cancelled. For the owner.
        """
        for run in self.store.unfinished() if self.store.changed() else ():
            if run.id not in self._tasks and run.id not in self._queue:
                log.info("run %s begins or continues here", run.id)
                self.begin(run)
            elif run.status is RunStatus.CANCELLING:
                self.cancel(run.id)

    def cancel(self, run_id: str) -> None:
        """Stop a run. The rows that have ended are its output. A run that is not known here is
        cancelled when it begins: the store knows it.
        """
        run = self.known(run_id)
        if run is None or run.ended or _cancelling(run):
            return
        _enter(run, RunStatus.CANCELLING)
        self._save(run)
        group = self.live.get(run.id)
        if group is not None:
            group.cancel(run.id)
            loop = asyncio.get_running_loop()
            loop.call_later(_CANCEL_S, self._replace, run, group)
        self.changed(run)
        self._next()

    async def aclose(self) -> None:
        """End all workers. Their runs continue after the next start."""
        self._closed = True
        tasks: list[asyncio.Task[Any]] = [*self._tasks.values(), *self._groups.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _replace(self, run: Run, group: Group) -> None:
        """Stop a worker that does not stop when a run is cancelled."""
        if self.live.get(run.id) is group and run.id in group.members:
            group.child.kill()

    def _next(self) -> None:
        """Begin with queued runs: those that can join, cancelled ones, and then those of tenants
        with the fewest processes.
        """
        for run in () if self._closed else tuple(self._queue.values()):
            group = self._open_group(run)
            if group is not None:
                group.join(run)
                self._begin(run, group)
            elif _cancelling(run) and not self._has_journal(run):
                self._begin(run, None)
        while self._queue and not self._closed:
            held = Counter(group.first.tenant for group in self._groups)
            run = min(
                self._queue.values(), key=lambda one: (not _cancelling(one), held[one.tenant])
            )
            # One more place is for cancelled runs, which write the rows of their journals.
            free = self.limits.running - len(self._groups) + _cancelling(run)
            # The last place is for a tenant without a process: others may hold theirs for days.
            if free < 1 or (free == 1 and held[run.tenant] and not _cancelling(run)):
                # A process that only waits for runs to join it has no more time.
                for group in self._groups:
                    if not group.members:
                        group.close()
                return
            self._begin(run, self._group(run))
            for other in tuple(self._queue.values()):
                group = self._open_group(other)
                if group is not None:
                    group.join(other)
                    self._begin(other, group)

    def _open_group(self, run: Run) -> Group | None:
        """Return a process that a run can join."""
        if run.id in self._alone:
            return None
        return next((group for group in self._groups if group.takes(run)), None)

    def _group(self, run: Run) -> Group:
        """Begin a process for a run."""
        child = Child(self.limits.memory_bytes, self.limits.stall_s)
        calls = RunCalls(run.tenant, run.id, self.submit, child.send)
        group = Group(run, child, calls, self.sender, self.lifecycle, self._news)
        # The place of a cancelled run is for this run only.
        if run.id in self._alone or _cancelling(run):
            group.close()
        task = asyncio.get_running_loop().create_task(group.serve())
        self._groups[group] = task
        task.add_done_callback(partial(self._group_done, group))
        return group

    def _group_done(self, group: Group, _: object) -> None:
        del self._groups[group]
        self._next()

    def _has_journal(self, run: Run) -> bool:
        """Whether a run has begun before."""
        return (self.store.folder(run.id) / JOURNAL).exists()

    def _begin(self, run: Run, group: Group | None) -> None:
        """Begin with a queued run in a process, or end a cancelled one that needs none."""
        del self._queue[run.id]
        self._serving[run.id] = run
        if group is not None:
            self.live[run.id] = group
        work = self._cancelled(run) if group is None else self._serve(run, group)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[run.id] = task
        task.add_done_callback(partial(self._done, run))

    def _done(self, run: Run, task: asyncio.Task[bool]) -> None:
        del self._tasks[run.id], self._serving[run.id]
        if not task.cancelled() and not task.result():
            self._alone.add(run.id)
            self._queue[run.id] = run
        self._next()

    async def _cancelled(self, run: Run) -> bool:
        """End a cancelled run that has no rows."""
        await self._ended(run, RunStatus.CANCELLED, None)
        return True

    async def _serve(self, run: Run, group: Group) -> bool:
        """Run to the end. Never raises. Returns False if the run must begin again, alone."""
        try:
            end = await self._worked(run, group)
            if isinstance(end, ChildLost):
                log.warning("run %s: %s", run.id, end)
                if group.crowded:
                    return False
                if not _cancelling(run):
                    # The rows that have ended are in the journal.
                    self._alone.add(run.id)
                    self.live[run.id] = rest = self._group(run)
                    await self._worked(run, rest, finish=True)
                end = Wrong("process_failed", f"The run has failed: {end}.")
            await self._end(run, end)
        except OSError as error:
            log.error("run %s: %s", run.id, error)
            if error.errno in _PASSING:
                # The run begins again, and its journal stays.
                room = False
                while not room:
                    await asyncio.sleep(_AGAIN_S)
                    room = await asyncio.to_thread(_has_room, self.store.folder(run.id))
                return False
            failed = RunError("storage_failed", f"The run cannot be stored: {error.strerror}.")
            run.output_file = ""
            await self._ended(run, RunStatus.FAILED, failed)
        return True

    async def _worked(self, run: Run, group: Group, *, finish: bool = False) -> End:
        """Serve a run in a process until its end there. Raises OSError."""
        try:
            await self.sender.look()
            finish = finish or _cancelling(run)
            if not finish:
                _enter(run, RunStatus.IN_PROGRESS)
            self._save(run)
            self.changed(run)
            start = Start(
                run=run.id,
                folder=str(self.store.folder(run.id).resolve()),
                file=run.file,
                input=run.input_name,
                rules=self.rules,
                model=run.model,
                calls=min(_MOST_CALLS, self.sender.most()),
                tokens=run.budget_tokens,
                errors=run.max_errors,
                most_rows=self.limits.rows,
                most_bytes=self.limits.body_bytes,
                storage=self.limits.stored_bytes - self.files.usage(run.tenant)[1],
                finish=finish,
            )
            end = await group.work(start)
            if isinstance(end, Wrong) and end.errno:
                raise OSError(end.errno, end.message)
            return end
        finally:
            del self.live[run.id]

    def _news(self, member: Member, news: InputRead | Progress) -> None:
        """Keep what a worker reports of a run."""
        run = member.run
        if isinstance(news, InputRead):
            run.rows = news.rows
            self.changed(run)
            return
        figures = (news.rows - news.failed, news.failed, news.tokens, news.operators)
        if figures != (run.completed, run.failed, run.tokens, run.operators) or news.ends:
            run.completed, run.failed, run.tokens, run.operators = figures
            self.ends.setdefault(run.id, array("Q")).extend(news.ends)
            member.unsaved = True
            self.changed(run)
        # Other gateways read the store, also if no further news follows for long.
        if member.unsaved and monotonic() - member.saved_s >= _SAVE_S:
            member.saved_s, member.unsaved = monotonic(), False
            self._save(run)

    async def _end(self, run: Run, end: Over | Wrong) -> None:
        """Publish the output, and store the end. Raises OSError."""
        cancelled = _cancelling(run)
        await asyncio.to_thread(self._publish, run)
        if isinstance(end, Wrong):
            error: RunError | None = RunError(end.code, end.message)
        else:
            error = _STOPS.get(end.reason)
        if cancelled:
            await self._ended(run, RunStatus.CANCELLED, None)
        elif isinstance(end, Over):
            await self._ended(run, RunStatus.STOPPED if error else RunStatus.COMPLETED, error)
        else:
            await self._ended(run, RunStatus.FAILED, error)

    def _publish(self, run: Run) -> None:
        """Make the output a file of the tenant."""
        output = self.store.folder(run.id) / OUTPUT
        if output.exists() and not run.output_file:
            file_id = new_file_id("file-")
            output.replace(self.files.path(file_id))
            run.output_file = file_id

    async def _ended(self, run: Run, status: RunStatus, error: RunError | None) -> None:
        """Store the end, once the disk takes it. Raises OSError."""
        run.error = error
        _enter(run, status)
        while not self._stored(run):  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_S)
        self.metrics.runs.labels(status.value).inc()
        self.store.forget(run.id)
        self._alone.discard(run.id)
        self.changed(run)
        # Listeners read the last rows, also after they have lost their connections for a moment.
        loop = asyncio.get_running_loop()
        loop.call_later(_ENDS_KEPT_S, self.ends.pop, run.id, None)

    def _stored(self, run: Run) -> bool:
        """Store a run that has ended, and its output. Returns whether the database took both."""
        if run.output_file and self.files.file(run.tenant, run.output_file) is None:
            size, now = self.files.path(run.output_file).stat().st_size, int(time())
            name, until = f"{run.id}_output.jsonl", now + int(self.limits.keep_s)
            file = StoredFile(
                run.output_file, run.tenant, name, "workflow_output", size, now, until
            )
            try:
                self.files.add_file(file)
            except sqlite3.Error as error:
                log.error("run %s: the output cannot be stored: %s", run.id, error)
                return False
        return self._save(run)

    def _save(self, run: Run) -> bool:
        """Store the state. A full disk does not end a run: a later state replaces this one."""
        try:
            self.store.save(run)
        except sqlite3.Error as error:
            log.error("run %s: its state cannot be stored: %s", run.id, error)
            return False
        return True


def _has_room(folder: Path) -> bool:
    """Whether the disk takes new files."""
    file = folder / "room"
    try:
        with file.open("wb") as probe:
            probe.write(bytes(_ROOM_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno not in _PASSING
    finally:
        with suppress(OSError):
            file.unlink()
    return True


def _cancelling(run: Run) -> bool:
    return run.status is RunStatus.CANCELLING


def _enter(run: Run, status: RunStatus) -> None:
    run.status = status
    run.times = {**run.times, status.value: int(time())}
