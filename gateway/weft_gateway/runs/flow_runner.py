"""Runs the runs of workflows that began over HTTP: a worker process for each, a few at once.

The worker decides and keeps the journal; this module makes its calls in the window of background
calls, and stores the state. A run that a stop interrupted continues from its journal.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, time
from typing import Final

from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.model import ProgramKey
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.runs.batch_calls import Submit
from weft_gateway.runs.batch_store import BatchStore, StoredFile
from weft_gateway.runs.batch_store import new_id as new_file_id
from weft_gateway.runs.flow_calls import RunCalls
from weft_gateway.runs.flow_child import Child, ChildLost
from weft_gateway.runs.flow_rules import Rules
from weft_gateway.runs.flow_store import FlowStore, Run, RunError, RunStatus
from weft_gateway.runs.flow_wire import (
    OUTPUT,
    Ask,
    Cancel,
    Drop,
    Opened,
    Over,
    Progress,
    Start,
    Wrong,
)
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
_BUDGETS: Final = {
    "tokens": RunError("token_budget", "The token budget is spent."),
    "errors": RunError("error_budget", "Too many rows have failed."),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """running: runs at once. memory_bytes, stall_s: of a worker. rows: of an input. body_bytes: of
    a call. keep_s: lifetime of outputs, seconds.
    """

    running: int
    memory_bytes: int
    stall_s: float
    rows: int
    body_bytes: int
    keep_s: float


@dataclass(slots=True, eq=False)
class Live:
    """A run with a worker."""

    run: Run
    calls: RunCalls
    child: Child
    saved_s: float = 0.0


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
    live: dict[str, Live] = field(default_factory=dict, init=False)
    ends: dict[str, array[int]] = field(default_factory=dict, init=False)
    _queue: dict[str, Run] = field(default_factory=dict, init=False)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _running: Counter[str] = field(default_factory=Counter, init=False)
    _closed: bool = field(default=False, init=False)

    def begin(self, run: Run) -> None:
        """Queue a run."""
        self._queue[run.id] = run
        self._next()

    def known(self, run_id: str) -> Run | None:
        """Return the present state of an unfinished run."""
        live = self.live.get(run_id)
        return self._queue.get(run_id) if live is None else live.run

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
        if run is None or run.ended or run.status is RunStatus.CANCELLING:
            return
        _enter(run, RunStatus.CANCELLING)
        self._save(run)
        live = self.live.get(run.id)
        if live is not None:
            live.calls.stop()
            live.child.send(Cancel())
            loop = asyncio.get_running_loop()
            loop.call_later(_CANCEL_S, self._replace, live)
        self.changed(run)

    async def aclose(self) -> None:
        """End all workers. Their runs continue after the next start."""
        self._closed = True
        for task in tuple(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _replace(self, live: Live) -> None:
        """Stop a worker that does not stop when it is cancelled."""
        if self.live.get(live.run.id) is live:
            live.child.kill()

    def _next(self) -> None:
        """Begin with queued runs, those of tenants with the fewest running ones first."""
        while self._queue and len(self._tasks) < self.limits.running and not self._closed:
            run = min(self._queue.values(), key=lambda one: self._running[one.tenant])
            del self._queue[run.id]
            self._running[run.tenant] += 1
            task = asyncio.get_running_loop().create_task(self._serve(run))
            self._tasks[run.id] = task
            task.add_done_callback(partial(self._done, run))

    def _done(self, run: Run, _: object) -> None:
        del self._tasks[run.id]
        self._running[run.tenant] -= 1
        self._next()

    async def _serve(self, run: Run) -> None:
        """Run to the end. Never raises."""
        run.starts += 1
        try:
            finish = run.status is RunStatus.CANCELLING
            end = await self._worked(run, finish=finish)
            if isinstance(end, ChildLost):
                log.warning("run %s: %s", run.id, end)
                if not finish:
                    # The rows that have ended are in the journal.
                    await self._worked(run, finish=True)
                end = Wrong("process_failed", f"The run has failed: {end}.")
            await self._end(run, end)
        except OSError as error:
            log.error("run %s: %s", run.id, error)
            failed = RunError("storage_failed", f"The run cannot be stored: {error.strerror}.")
            run.output_file = ""
            await self._ended(run, RunStatus.FAILED, failed)

    async def _worked(self, run: Run, *, finish: bool) -> Over | Wrong | ChildLost:
        """Serve one worker until its last message. Raises OSError."""
        limits = self.limits
        async with Child(limits.memory_bytes, limits.stall_s) as child:
            calls = RunCalls(run.tenant, run.id, self.submit, child.send)
            live = Live(run, calls, child)
            await self.sender.look()
            if not finish:
                _enter(run, RunStatus.IN_PROGRESS)
            self._save(run)
            self.live[run.id], self.sender.sources[run.id] = live, calls
            self.changed(run)
            start = Start(
                folder=str(self.store.folder(run.id).resolve()),
                file=run.file,
                rules=self.rules,
                model=run.model,
                calls=min(_MOST_CALLS, self.sender.most()),
                tokens=run.budget_tokens,
                errors=run.max_errors,
                most_rows=limits.rows,
                most_bytes=limits.body_bytes,
                finish=finish,
            )
            child.send(start)
            try:
                return await self._listen(live)
            except ChildLost as error:
                return error
            finally:
                calls.stop()
                del self.live[run.id]
                del self.sender.sources[run.id]

    async def _listen(self, live: Live) -> Over | Wrong:
        """Serve the messages of a worker. Raises ChildLost."""
        run, calls = live.run, live.calls
        while True:
            match message := await live.child.receive():
                case Ask():
                    if run.status is not RunStatus.CANCELLING:
                        calls.ask(message)
                        self.sender.dispatch()
                case Drop(number):
                    calls.drop(number)
                case Opened(rows):
                    run.rows = rows
                    calls.expected = max(1, rows * run.calls)
                    self.changed(run)
                case Progress():
                    self._progress(live, message)
                case Over() | Wrong():
                    return message

    def _progress(self, live: Live, news: Progress) -> None:
        run = live.run
        figures = (news.rows - news.failed, news.failed, news.tokens, news.operators)
        if figures == (run.completed, run.failed, run.tokens, run.operators) and not news.ends:
            return
        run.completed, run.failed, run.tokens, run.operators = figures
        self.ends.setdefault(run.id, array("Q")).extend(news.ends)
        if monotonic() - live.saved_s >= _SAVE_S:
            live.saved_s = monotonic()
            self._save(run)
        self.changed(run)

    async def _end(self, run: Run, end: Over | Wrong) -> None:
        """Publish the output, and store the end. Raises OSError."""
        cancelled = run.status is RunStatus.CANCELLING
        await asyncio.to_thread(self._publish, run)
        if isinstance(end, Wrong):
            error: RunError | None = RunError(end.code, end.message)
        else:
            error = _BUDGETS.get(end.reason)
        if cancelled:
            await self._ended(run, RunStatus.CANCELLED, None)
        elif isinstance(end, Over):
            await self._ended(run, RunStatus.STOPPED if error else RunStatus.COMPLETED, error)
        else:
            await self._ended(run, RunStatus.FAILED, error)
        with suppress(TableUnavailable):
            await self.lifecycle.end(ProgramKey(run.tenant, run.id), time())

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


def _enter(run: Run, status: RunStatus) -> None:
    run.status = status
    run.times = {**run.times, status.value: int(time())}
