"""Runs over HTTP: `weft run` in limited processes, a few at once.

A run is a record and a folder with its workflow and rows. Its process makes its calls as a client
of this gateway, with a token of its own. Runs of one workflow that arrive within `batch_ms` are
rows of one process. The journal is in the folder, so a process that begins again continues.

Runs live beside files and batches, in the same folder, and its owner runs them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from time import monotonic, time
from typing import Any, Final
from urllib.parse import urlsplit

from weft_gateway.errors import ApiError
from weft_gateway.runs.batch_store import StoredFile
from weft_gateway.runs.batch_store import is_id as is_file_id
from weft_gateway.runs.batch_store import new_id as new_file_id
from weft_gateway.runs.batches import Batches, disk_error, unavailable
from weft_gateway.runs.run_process import ProcessLost, RunProcess
from weft_gateway.runs.run_store import (
    Run,
    RunError,
    RunStatus,
    RunStore,
    is_run_id,
    new_run_id,
)
from weft_gateway.runs.run_tokens import RunTokens
from weft_gateway.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# Processes at once. The last place is for a tenant without one: others may hold theirs for days.
PROCESSES: Final = 4
# Unfinished runs of a tenant, and rows of a run.
RUNS_PER_TENANT: Final = 20
ROWS: Final = 1_000_000
# Runs of one process.
_JOINED: Final = 32
# Of a process: address space, bytes, and processor time of a step, such as the rendering of a
# template, seconds.
MEMORY_BYTES: Final = 1 << 30
STEP_S: Final = 10
# The least size of a file of a process.
_LEAST_BYTES: Final = 16 << 20
_FOLLOW_S: Final = 0.2
_HOUSEKEEPING_S: Final = 60.0
# Time of a cancelled run to write its rows before its process is stopped, seconds.
_CANCEL_S: Final = 10.0
_ENDS_KEPT_S: Final = 60.0
# Pause before the next attempt after an error of the disk, seconds.
AGAIN_S: Final = 5.0
# Errors that another attempt may not have: of processes, memory, open files and disks.
_PASSING: Final = (
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO,
)  # fmt: skip
_SHOWN: Final = 64
_PURPOSES: Final = ("workflow", "batch", "user_data")
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
class Wanted:
    """A run to create. text: of the workflow. rows or input_file: its input; each row is a JSON
    text in one line. tokens, errors: the budget, None for no limit. batch_ms: see `Run`.
    """

    text: str
    rows: Sequence[bytes] | None = None
    input_file: str = ""
    tokens: int | None = None
    errors: int | None = None
    batch_ms: int = 0


@dataclass(slots=True, eq=False)
class _Group:
    """Runs that share a process, and a folder, that of the first one. begins_s: when it may begin,
    monotonic clock. lost: the process was lost once, so that one run after the other continues.
    """

    runs: list[Run]
    folder: str
    begins_s: float
    process: RunProcess | None = None
    lost: bool = False

    @property
    def tenant(self) -> str:
        return self.runs[0].tenant

    @property
    def left(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.runs if not run.ended]

    def takes(self, run: Run) -> bool:
        """Whether a run may join before the process begins."""
        first = self.runs[0]
        return (
            monotonic() < self.begins_s
            and (run.tenant, run.digest) == (first.tenant, first.digest)
            and len(self.runs) < _JOINED
        )


@dataclass(slots=True, eq=False)
class Runs:
    """The runs of one gateway. url: base URL of this gateway. connections: SQLite files by name,
    and hosts: `host:port`, that operators may read and reach. changed: called when a run has news.
    ends: by run, the rows that have ended since the last start, twice the number, plus 1 if the row
    has failed.
    """

    batches: Batches
    tokens: RunTokens
    url: str
    connections: dict[str, str]
    hosts: frozenset[str]
    metrics: Metrics
    changed: Callable[[Run], None]
    ends: dict[str, array[int]] = field(default_factory=dict, init=False)
    _store: RunStore | None = field(default=None, init=False)
    # Unfinished runs that this process knows, with their groups.
    _groups: dict[str, _Group] = field(default_factory=dict, init=False)
    _known: dict[str, Run] = field(default_factory=dict, init=False)
    _tasks: dict[_Group, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)

    # The life of the gateway

    def start(self) -> None:
        """Open the store if it exists. Call it after `Batches.start`."""
        if self._store is None and RunStore.file(self.batches.folder).is_file():
            with suppress(ApiError):
                self._open()

    async def run(self) -> None:
        """Once this process owns the folder, run the runs and delete old ones; until cancelled."""
        await self._listening()
        kept_s = float("-inf")
        while True:
            self.start()
            if self._store is not None and self.batches.store.owner:
                if monotonic() - kept_s >= _HOUSEKEEPING_S:
                    kept_s = monotonic()
                    self._store.sweep(time() - self.batches.quota.keep_s)
                self._follow()
                self._next()
            await asyncio.sleep(_FOLLOW_S)

    async def _listening(self) -> None:
        """Wait until this gateway takes the calls of its runs."""
        while True:
            place = urlsplit(self.url)
            try:
                _, writer = await asyncio.open_connection(place.hostname, place.port)
            except OSError:
                await asyncio.sleep(_FOLLOW_S)
            else:
                writer.close()
                return

    async def stop(self) -> None:
        """Stop all processes. Their runs continue after the next start."""
        self._closed = True
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Stop, and close the store. Call it before `Batches.aclose`."""
        await self.stop()
        if self._store is not None:
            self._store.close()

    @property
    def store(self) -> RunStore:
        """The store, opened at the first use. Raises ApiError 503."""
        return self._store or self._open()

    def _open(self) -> RunStore:
        assert self.batches.store
        try:
            self._store = RunStore(self.batches.folder)
        except OSError as error:
            raise disk_error(error) from None
        except sqlite3.Error as error:
            raise unavailable(str(error)) from None
        return self._store

    # What clients do

    def create(self, tenant: str, wanted: Wanted) -> Run:
        """Create a run, which its process checks. Raises ApiError 400 for an input that cannot be
        used, and 403 and 429 at a limit.
        """
        store = self.store
        if len([*store.unfinished(tenant)]) >= RUNS_PER_TENANT:
            what = f"At most {RUNS_PER_TENANT} runs may be unfinished at once."
            raise ApiError(429, "too_many_runs", what)
        self.batches.check_storage(tenant)
        run = Run(
            new_run_id(), tenant, sha256(wanted.text.encode()).hexdigest(), int(time()),
            input_file=wanted.input_file, budget_tokens=wanted.tokens, max_errors=wanted.errors,
            batch_ms=wanted.batch_ms,
        )  # fmt: skip
        folder, kept = store.folder(run.id), False
        try:
            folder.mkdir(mode=0o700)
            (folder / "workflow.yaml").write_text(wanted.text, encoding="utf-8")
            if wanted.rows is None:
                self._link(tenant, run)
            else:
                (folder / "rows.jsonl").write_bytes(b"\n".join(wanted.rows))
            store.save(run)
            kept = True
        except OSError as error:
            raise disk_error(error) from None
        except sqlite3.Error as error:
            raise unavailable(str(error)) from None
        finally:
            if not kept:
                store.forget(run.id)
        if self.batches.store.owner:
            self._begin(run)
            self._next()
        return run

    def _link(self, tenant: str, run: Run) -> None:
        """Take a file as the input. The run keeps it if its tenant deletes it meanwhile."""
        name = run.input_file
        file = self.batches.store.file(tenant, name) if is_file_id(name) else None
        if file is None or file.hidden:
            what = f"No file with id {name[:_SHOWN]!r} on this gateway."
            raise ApiError(400, "invalid_input_file", what, param="input_file_id")
        if file.purpose not in _PURPOSES:
            what = f"The purpose of the input file must be 'workflow', not {file.purpose!r}."
            raise ApiError(400, "invalid_input_file", what, param="input_file_id")
        path = self.batches.store.path(file.id)
        os.link(path, self.store.folder(run.id) / "rows.jsonl")
        run.input_name = file.name[:_SHOWN]

    def find(self, tenant: str, run_id: str) -> Run:
        """Return a tenant's run. Raises ApiError 404."""
        found = self.store.run(tenant, run_id) if is_run_id(run_id) else None
        if found is None:
            what = (
                f"No run with id {run_id[:_SHOWN]!r}. Runs belong to the gateway that created "
                "them, and to those with the same folder."
            )
            raise ApiError(404, "run_not_found", what)
        return self._known.get(run_id, found)

    def page(self, tenant: str, limit: int, after: str) -> list[Run]:
        """Return a page of a tenant's runs, the newest first. Raises ApiError 404."""
        if after:
            self.find(tenant, after)
        return [self._known.get(run.id, run) for run in self.store.runs(tenant, limit, after)]

    def cancel(self, tenant: str, run_id: str) -> Run:
        """Cancel a run. One that has ended stays unchanged. Raises ApiError 404."""
        run = self.find(tenant, run_id)
        if not run.ended:
            self.store.cancel(run.id)
            self._cancel(run)
        return self.find(tenant, run_id)

    def output(self, tenant: str, run_id: str) -> str:
        """Return the id of the file with the output. Raises ApiError 404."""
        run = self.find(tenant, run_id)
        if not run.ended or not run.output_file:
            what = f"Run {run.id} has no output: its status is {run.status.value}."
            raise ApiError(404, "no_output", what)
        return run.output_file

    # The queue

    def _follow(self) -> None:
        """Begin the runs that this process did not create, and cancel those that another one has
        cancelled.
        """
        for run in self.store.unfinished() if self.store.changed() else ():
            if run.id not in self._known:
                self._begin(run)
            elif run.cancelling:
                self._cancel(run)

    def _begin(self, run: Run) -> None:
        """Queue a run, alone or with others."""
        run.starts += 1
        self._known[run.id] = run
        group: _Group | None = None
        alone = not run.batch_ms or run.budget_tokens is not None or run.max_errors is not None
        if run.group:
            # Their process has begun before, with these rows.
            group = next((one for one in self._groups.values() if one.folder == run.group), None)
        elif not alone and not run.cancelling:
            group = next((one for one in self._groups.values() if one.takes(run)), None)
        if group is None:
            wait_s = 0.0 if alone or run.group or run.cancelling else run.batch_ms / 1000
            group = _Group([], run.group or run.id, monotonic() + wait_s)
        group.runs.append(run)
        self._groups[run.id] = group

    def _next(self) -> None:
        """Start the processes of groups that may begin: first those that are cancelled, then those
        of tenants with the fewest processes.
        """
        while not self._closed:
            held = Counter(group.tenant for group in self._tasks)
            ready = [
                group for group in dict.fromkeys(self._groups.values())
                if group not in self._tasks and monotonic() >= group.begins_s
            ]  # fmt: skip
            group = min(
                ready, key=lambda one: (not _cancelled(one), held[one.tenant]), default=None
            )
            # One more place is for cancelled runs, which write the rows of their journals.
            free = PROCESSES - len(self._tasks) + (group is not None and _cancelled(group))
            if group is None or free < 1:
                return
            if free == 1 and held[group.tenant] and not _cancelled(group):
                return
            task = asyncio.get_running_loop().create_task(self._serve(group))
            self._tasks[group] = task
            task.add_done_callback(partial(self._served, group))

    def _served(self, group: _Group, task: asyncio.Task[None]) -> None:
        del self._tasks[group]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the process of run %s: %s", group.folder, error, exc_info=error)
            group.begins_s = monotonic() + AGAIN_S
        self._next()

    def _cancel(self, found: Run) -> None:
        """Stop a run. The rows that have ended are its output."""
        run = self._known.get(found.id)
        if run is None or run.ended or run.cancelling:
            return
        run.enter(RunStatus.CANCELLING)
        self._save(run)
        self.changed(run)
        group = self._groups[run.id]
        if group.process is not None:
            group.process.send({"cancel": run.id})
            asyncio.get_running_loop().call_later(_CANCEL_S, self._stop, run, group.process)
        elif group not in self._tasks and not run.group:
            # It waits for no place and for no other run.
            group.runs.remove(run)
            if group.runs:
                group.folder = group.runs[0].id
            self._groups[run.id] = _Group([run], run.id, 0.0)
            self._next()

    @staticmethod
    def _stop(run: Run, process: RunProcess) -> None:
        """Stop a process that does not react to the cancellation of a run."""
        if not run.ended:
            process.kill()

    # One process

    async def _serve(self, group: _Group) -> None:
        """Run the runs of a group to their ends. A lost process ends the run that it had alone."""
        while runs := group.left[: 1 if group.lost else None]:
            fresh = not runs[0].group
            try:
                for run in runs:
                    run.group = group.folder
                    if not run.cancelling:
                        run.enter(RunStatus.IN_PROGRESS)
                    self._save(run)
                    self.changed(run)
                if fresh and all(run.cancelling for run in runs):
                    for run in runs:
                        await self._end(run, RunStatus.CANCELLED, None)
                    continue
                await self._process(group, runs, finish=False)
            except ProcessLost as error:
                log.warning("run %s: %s", group.folder, error)
                if len(runs) > 1:
                    group.lost = True
                    continue
                await self._failed(group, runs[0], error)
            except OSError as error:
                log.error("run %s: %s", group.folder, error)
                if error.errno in _PASSING:
                    await asyncio.sleep(AGAIN_S)
                    continue
                why = RunError("storage_failed", f"The run cannot be stored: {error.strerror}.")
                for run in group.left:
                    await self._end(run, RunStatus.FAILED, why)
        self.store.forget(group.folder)

    async def _failed(self, group: _Group, run: Run, error: ProcessLost) -> None:
        """End a run whose process is lost, with the rows that its journal has."""
        cancelled = run.cancelling
        with suppress(ProcessLost):
            await self._process(group, [run], finish=True)
        if not run.ended:
            why = None if cancelled else RunError("process_failed", f"The run has failed: {error}.")
            await self._end(run, RunStatus.CANCELLED if cancelled else RunStatus.FAILED, why)

    async def _process(self, group: _Group, runs: list[Run], *, finish: bool) -> None:
        """Serve runs with one process. finish: only write the rows of the journal. Raises
        ProcessLost and OSError.
        """
        store, folder = self.store, self.store.folder(group.folder).resolve()
        token = self.tokens.issue(group.tenant, group.folder)
        left = self.batches.quota.bytes - self.batches.store.usage(group.tenant)[1]
        names = {run.id: run for run in group.left}
        before = {run.id: run.tokens for run in runs}
        job = {
            "folder": str(folder),
            "members": [
                {"run": run.id, "folder": str(store.folder(run.id).resolve()),
                 "input": run.input_name, "cancelled": run.cancelling, "waits": run not in runs}
                for run in group.left
            ],
            "gateway": self.url,
            "token": token,
            "program": group.folder,
            "connections": self.connections,
            "hosts": sorted(self.hosts),
            "tokens": runs[0].budget_tokens,
            "errors": runs[0].max_errors,
            "rows": ROWS,
            "memory_bytes": MEMORY_BYTES,
            "step_s": STEP_S,
            "file_bytes": max(_LEAST_BYTES, left),
            "finish": finish,
        }  # fmt: skip
        try:
            async with RunProcess(folder, job) as process:
                group.process = process
                async for report in process.reports():
                    run = names[report["run"]]
                    if "over" in report or "wrong" in report:
                        await self._over(run, report, finish)
                        continue
                    run.rows = report.get("rows", run.rows)
                    run.completed, run.failed = report["completed"], report["failed"]
                    run.tokens = before[run.id] + report["tokens"]
                    self.ends.setdefault(run.id, array("Q")).extend(report["ends"])
                    self.changed(run)
                    # Other gateways, and the next one, read the store.
                    self._save(run)
        finally:
            group.process = None
            self.tokens.end(token)
        if not finish and any(not run.ended for run in runs):
            raise ProcessLost("its process has ended too early")

    async def _over(self, run: Run, report: dict[str, Any], finish: bool) -> None:
        """A run has ended. Raises OSError for an error that may pass."""
        if report.get("errno") in _PASSING:
            raise OSError(report["errno"], report["message"])
        await asyncio.to_thread(self._publish, run)
        if finish:
            return
        if run.cancelling:
            await self._end(run, RunStatus.CANCELLED, None)
        elif "wrong" in report:
            error = RunError(report["wrong"], report["message"])
            await self._end(run, RunStatus.FAILED, error)
        else:
            stop = _STOPS.get(report["over"])
            await self._end(run, RunStatus.STOPPED if stop else RunStatus.COMPLETED, stop)

    def _publish(self, run: Run) -> None:
        """Make the output a file of the tenant."""
        output = self.store.folder(run.id) / "output.jsonl"
        if output.exists() and not run.output_file:
            file_id = new_file_id("file-")
            output.replace(self.batches.store.path(file_id))
            run.output_file = file_id

    async def _end(self, run: Run, status: RunStatus, error: RunError | None) -> None:
        """Store the end, once the database takes it."""
        run.error = error
        run.enter(status)
        while not self._stored(run):  # noqa: ASYNC110
            await asyncio.sleep(AGAIN_S)
        self.metrics.runs.labels(status.value).inc()
        group = self._groups.pop(run.id)
        del self._known[run.id]
        if run.id != group.folder:
            self.store.forget(run.id)
        self.changed(run)
        # Listeners read the last rows, also after they have lost their connections for a moment.
        asyncio.get_running_loop().call_later(_ENDS_KEPT_S, self.ends.pop, run.id, None)

    def _stored(self, run: Run) -> bool:
        """Store a run that has ended, and its output. Returns whether the database took both."""
        files = self.batches.store
        if run.output_file and files.file(run.tenant, run.output_file) is None:
            size, now = files.path(run.output_file).stat().st_size, int(time())
            file = StoredFile(
                run.output_file, run.tenant, f"{run.id}_output.jsonl", "workflow_output", size, now,
                now + int(self.batches.quota.keep_s),
            )  # fmt: skip
            try:
                files.add_file(file)
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


def _cancelled(group: _Group) -> bool:
    """Whether all runs of a group are cancelled."""
    return all(run.cancelling for run in group.left)
