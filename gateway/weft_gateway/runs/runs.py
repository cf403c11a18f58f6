"""Runs over HTTP: `weft run` in limited processes, a few at once.

A run is a record and a folder with its workflow and rows. Its process makes its calls as a client
of this gateway, with a token of its own. Runs of one workflow that arrive within `batch_ms` are
rows of one process. The journal is in the folder, so a process that begins again continues.

Runs live beside files and batches, in the same folder, and its owner runs them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from time import monotonic, time
from typing import Any, Final
from urllib.parse import urlsplit

from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey
from weft_gateway.runs.batches import Batches, not_found
from weft_gateway.runs.records import Run, RunError, Status, is_id, new_id
from weft_gateway.runs.run_process import ProcessLost, RunProcess
from weft_gateway.runs.run_tokens import RunTokens
from weft_gateway.runs.store import Store, disk_error
from weft_gateway.telemetry.listeners import Listeners
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
_START_S: Final = 0.2
# Time of a cancelled run to write its rows before its process is stopped, seconds.
_CANCEL_S: Final = 10.0
# Pause before the next attempt after an error of the disk, seconds, and attempts: ten minutes.
AGAIN_S: Final = 5.0
_ATTEMPTS: Final = 120
_SHOWN: Final = 64
_LINE: Final = re.compile(r"^joined\.jsonl:(\d+)(: .*)$", re.MULTILINE)
_UNSTORED: Final = RunError(
    "storage_failed", "The disk of the gateway has refused the files of this run for ten minutes."
)
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


@dataclass(slots=True, eq=False)
class _Group:
    """Runs that share a process, and a folder, that of the first one. runs: those that have not
    ended. begins_s: when it may begin, monotonic clock.
    """

    folder: str
    runs: list[Run] = field(default_factory=list)
    begins_s: float = 0.0
    process: RunProcess | None = None

    def takes(self, run: Run) -> bool:
        """Whether a run may join before the process begins."""
        one = self.runs[0]
        same = (run.tenant, run.digest, run.group) == (one.tenant, one.digest, one.group)
        return same and monotonic() < self.begins_s and len(self.runs) < _JOINED


@dataclass(slots=True, eq=False)
class Runs:
    """The runs of one gateway. url: base URL of this gateway. connections: SQLite files by name,
    and hosts: `host:port`, that operators may read and reach. listeners: hear of news of a run.
    """

    batches: Batches
    tokens: RunTokens
    url: str
    connections: dict[str, str]
    hosts: frozenset[str]
    metrics: Metrics
    listeners: Listeners
    # Unfinished runs, with their groups.
    _known: dict[str, tuple[Run, _Group]] = field(default_factory=dict, init=False)
    _tasks: dict[_Group, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)

    # The life of the gateway

    async def run(self) -> None:
        """Once this process owns the folder, continue its runs; until cancelled."""
        await self._listening()
        await self.batches.owned.wait()
        for run in self.store.unfinished(Run):
            if run.id not in self._known:
                self._begin(run)
        self._next()
        await asyncio.get_running_loop().create_future()

    async def _listening(self) -> None:
        """Wait until this gateway takes the calls of its runs."""
        while True:
            place = urlsplit(self.url)
            try:
                _, writer = await asyncio.open_connection(place.hostname, place.port)
            except OSError:
                await asyncio.sleep(_START_S)
            else:
                writer.close()
                return

    async def aclose(self) -> None:
        """Stop all processes. Their runs continue after the next start. Call it before
        `Batches.aclose`.
        """
        self._closed = True
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def store(self) -> Store:
        """The store, which batches have, too."""
        return self.batches.store

    # What clients do

    def create(self, tenant: str, text: str, rows: Sequence[bytes] | None, **options: Any) -> Run:
        """Create a run, which its process checks. text: of the workflow. rows: each is a JSON text
        in one line; None if `input_file` has them. options: fields of `Run`. Raises ApiError 400
        for an input that cannot be used, 403 and 429 at a limit, and 503 if another gateway owns
        the folder.
        """
        store = self.store
        if len(store.unfinished(Run, tenant)) >= RUNS_PER_TENANT:
            what = f"At most {RUNS_PER_TENANT} runs may be unfinished at once."
            raise ApiError(429, "too_many_runs", what)
        self._check_owner()
        self.batches.check_storage(tenant)
        digest = sha256(text.encode()).hexdigest()
        run = Run(new_id("run_"), tenant, int(time()), digest=digest, **options)
        folder, kept = store.run_folder(run.id), False
        try:
            folder.mkdir(mode=0o700)
            (folder / "workflow.yaml").write_text(text, encoding="utf-8")
            if rows is None:
                self._link(tenant, run)
            else:
                run.rows = len(rows)
                (folder / "rows.jsonl").write_bytes(b"\n".join(rows) + b"\n")
            store.save(run)
            kept = True
        except OSError as error:
            raise disk_error(error) from None
        finally:
            if not kept:
                store.delete_folder(run.id)
        self._begin(run)
        self._next()
        return run

    def _check_owner(self) -> None:
        if not self.store.owner:
            what = "Another gateway with the same folder runs workflows: send this request to it."
            raise ApiError(503, "runs_elsewhere", what)

    def _link(self, tenant: str, run: Run) -> None:
        """Take a file as the input. The run keeps it if its tenant deletes it meanwhile."""
        name = run.input_file
        file = self.store.file(tenant, name) if is_id(name) else None
        if file is None or file.hidden:
            what = f"No file with id {name[:_SHOWN]!r} on this gateway."
        elif file.purpose not in _PURPOSES:
            what = f"The purpose of the input file must be 'workflow', not {file.purpose!r}."
        else:
            os.link(self.store.path(name), self.store.run_folder(run.id) / "rows.jsonl")
            run.input_name = file.name[:_SHOWN]
            return
        raise ApiError(400, "invalid_input_file", what, param="input_file_id")

    def find(self, tenant: str, run_id: str) -> Run:
        """Return a tenant's run. Raises ApiError 404."""
        found = self.store.find(Run, tenant, run_id) if is_id(run_id) else None
        if found is None:
            raise not_found("run", run_id)
        return self._present(found)

    def runs(self, tenant: str, after: str) -> Iterable[Run]:
        """Return a tenant's runs after the run `after`, the newest first. Raises ApiError 404."""
        if after:
            self.find(tenant, after)
        return map(self._present, self.store.newest(Run, tenant, after=after))

    def _present(self, run: Run) -> Run:
        return self._known[run.id][0] if run.id in self._known else run

    def cancel(self, tenant: str, run_id: str) -> Run:
        """Cancel a run: the rows that have ended are its output. One that has ended stays
        unchanged. Raises ApiError 404 and 503.
        """
        run = self.find(tenant, run_id)
        if run.ended or run.cancelling:
            return run
        self._check_owner()
        if run_id not in self._known:
            self._begin(run)
        run, group = self._known[run_id]
        # Before its process has begun, it waits for no place and for no other run.
        fresh = not run.group
        run.enter(Status.CANCELLED if fresh else Status.CANCELLING)
        self._changed(run)
        if fresh:
            self._gone(run, group)
        elif group.process is not None and _cancelled(group):
            group.process.cancel()
            asyncio.get_running_loop().call_later(_CANCEL_S, self._stop, run, group.process)
        return run

    def _changed(self, run: Run) -> None:
        """Store the state of a run, and tell its listeners."""
        self.store.saved(run)
        self.listeners.publish(listener_key(run.tenant, run.id), {})

    @staticmethod
    def _stop(run: Run, process: RunProcess) -> None:
        """Stop a process that does not react to its cancellation."""
        if not run.ended:
            process.kill()

    def output(self, tenant: str, run_id: str) -> str:
        """Return the id of the file with the output. Raises ApiError 404."""
        run = self.find(tenant, run_id)
        if not run.ended or not run.output_file:
            what = f"Run {run.id} has no output: its status is {run.status.value}."
            raise ApiError(404, "no_output", what)
        return run.output_file

    # The queue

    def _begin(self, run: Run) -> None:
        """Queue a run, alone or with others. Each joined run has its rows in the request."""
        groups = dict.fromkeys(group for _, group in self._known.values())
        limits = (run.input_file or None, run.budget_tokens, run.max_errors)
        joins = run.batch_ms > 0 and limits == (None, None, None)
        if run.group:
            # Their process has begun before, with these rows.
            group = next((one for one in groups if one.folder == run.group), None)
        else:
            group = next((one for one in groups if joins and one.takes(run)), None)
        if group is None:
            group = _Group(run.group or run.id)
            if joins and not run.group:
                self._later(group, run.batch_ms / 1000)
        group.runs.append(run)
        self._known[run.id] = run, group

    def _later(self, group: _Group, wait_s: float) -> None:
        group.begins_s = monotonic() + wait_s
        # A timer may be early by the resolution of the clock.
        asyncio.get_running_loop().call_later(wait_s + 0.01, self._next)

    def _next(self) -> None:
        """Start the processes of groups that may begin, first of tenants with the fewest."""
        while not self._closed:
            held = Counter(group.runs[0].tenant for group in self._tasks if group.runs)
            ready = [
                group for _, group in self._known.values()
                if group not in self._tasks and monotonic() >= group.begins_s
            ]  # fmt: skip
            group = min(ready, key=lambda one: held[one.runs[0].tenant], default=None)
            free = PROCESSES - len(self._tasks)
            if group is None or free < 1 or (free == 1 and held[group.runs[0].tenant]):
                return
            task = asyncio.get_running_loop().create_task(self._serve(group))
            self._tasks[group] = task
            task.add_done_callback(partial(self._served, group))

    def _served(self, group: _Group, task: asyncio.Task[None]) -> None:
        del self._tasks[group]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the process of run %s: %s", group.folder, error, exc_info=error)
            self._later(group, AGAIN_S)
        self._next()

    # One process

    async def _serve(self, group: _Group) -> None:
        """Run the runs of a group to their ends. A lost process ends them all, with the rows that
        its journal has.
        """
        lost: ProcessLost | None = None
        attempts = 0
        while group.runs:
            try:
                await self._process(group, lost)
            except ProcessLost as error:
                log.warning("run %s: %s", group.folder, error)
                for run in [*group.runs] if lost else ():
                    await self._end(run, group, _lost(lost or error))
                lost = lost or error
            except OSError as error:
                log.error("run %s: %s", group.folder, error)
                attempts += 1
                for run in [*group.runs] if attempts == _ATTEMPTS else ():
                    await self._end(run, group, _UNSTORED)
                await asyncio.sleep(AGAIN_S)
        self.store.delete_folder(group.folder)

    def _join(self, group: _Group) -> None:
        """Give each run its place in the input."""
        first = 0
        for run in group.runs:
            run.group, run.first = group.folder, first
            first += run.rows or 0
        if len(group.runs) > 1:
            inputs = [self.store.run_folder(run.id) / "rows.jsonl" for run in group.runs]
            joined = self.store.run_folder(group.folder) / "joined.jsonl"
            joined.write_bytes(b"".join(file.read_bytes() for file in inputs))

    async def _process(self, group: _Group, lost: ProcessLost | None) -> None:
        """Serve runs with one process. lost: why an earlier one was lost, so that this one only
        writes the rows of the journal. Raises ProcessLost and OSError.
        """
        runs, folder = [*group.runs], self.store.run_folder(group.folder)
        if not runs[0].group:
            group.folder = runs[0].id
            folder = self.store.run_folder(group.folder)
            self._join(group)
        for run in runs:
            if not run.cancelling:
                run.enter(Status.IN_PROGRESS)
            self._changed(run)
        token = self.tokens.issue(runs[0].tenant, group.folder)
        left = self.batches.quota.bytes - self.store.usage(runs[0].tenant)[1]
        before = {run.id: run.tokens for run in runs}
        joined = (folder / "joined.jsonl").exists()
        job = {
            "runs": [(run.id, run.first, run.rows if joined else None) for run in runs],
            "input": "joined.jsonl" if joined else "rows.jsonl",
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
            "finish": lost is not None or _cancelled(group),
        }
        end: dict[str, str] = {}
        try:
            async with RunProcess(folder, job) as process:
                group.process = process
                if _cancelled(group) and not job["finish"]:
                    # While the process began.
                    process.cancel()
                async for report in process.reports():
                    if "figures" not in report:
                        end = report
                        continue
                    for run in runs:
                        figures = report["figures"][run.id]
                        run.rows, run.completed, run.failed, tokens = figures
                        run.tokens = before[run.id] + tokens
                        self._changed(run)
        finally:
            group.process = None
            self.tokens.end(token)
        if "wrong" in end:
            await self._wrong(group, end)
            return
        for run in runs:
            await self._end(run, group, _lost(lost) if lost else _STOPS.get(end["over"]))

    async def _wrong(self, group: _Group, report: dict[str, str]) -> None:
        """A process refuses its runs. Raises OSError for an error of the disk."""
        code, message = report["wrong"], report["message"]
        if code == "again":
            raise OSError(message)
        # A joined row has the line of its number.
        lines = [(int(line), text) for line, text in _LINE.findall(message)]
        if len(group.runs) == 1:
            lines = []
        for run in [*group.runs]:
            named = message.replace("rows.jsonl:", f"{run.input_name}:")
            if lines:
                place = range(run.first, run.first + (run.rows or 0))
                own = [(at - run.first, text) for at, text in lines if at - 1 in place]
                named = "\n".join(f"{run.input_name}:{at}{text}" for at, text in own)
            if named:
                await self._end(run, group, RunError(code, named))
        # The other runs begin again.
        for run in group.runs:
            run.group, run.first = "", 0
            (self.store.run_folder(group.folder) / "joined.jsonl").unlink(missing_ok=True)

    async def _end(self, run: Run, group: _Group, error: RunError | None) -> None:
        """Store the output and the end, once the database takes them. Raises OSError."""
        output = self.store.run_folder(group.folder) / f"{run.id}.jsonl"
        if output.exists():
            run.output_file = run.output_file or new_id("file-")
            output.replace(self.store.path(run.output_file))
        if run.cancelling:
            run.enter(Status.CANCELLED)
        else:
            run.error = error
            stopped = error in _STOPS.values()
            ends = Status.STOPPED if stopped else Status.FAILED
            run.enter(ends if error else Status.COMPLETED)
        while not self._stored(run):  # noqa: ASYNC110
            await asyncio.sleep(AGAIN_S)
        self._gone(run, group)
        self.listeners.publish(listener_key(run.tenant, run.id), {})

    def _gone(self, run: Run, group: _Group) -> None:
        """Forget a run that has ended."""
        self.metrics.runs.labels(run.status.value).inc()
        group.runs.remove(run)
        del self._known[run.id]
        if run.id != group.folder or not run.group:
            self.store.delete_folder(run.id)

    def _stored(self, run: Run) -> bool:
        """Store a run that has ended, and its output. Returns whether the database took both."""
        name = run.output_file
        if name and self.store.file(run.tenant, name) is None:
            try:
                self.batches.add_file(run.tenant, name, f"{run.id}_output.jsonl", "workflow_output")
            except sqlite3.Error as error:
                log.error("run %s: the output cannot be stored: %s", run.id, error)
                return False
        return self.store.saved(run)


def listener_key(tenant: str, run_id: str) -> ProgramKey:
    """Return the key of the listeners of a run. Those of its program are others."""
    return ProgramKey(tenant, f"{run_id}/events")


def _lost(why: ProcessLost) -> RunError:
    return RunError("process_failed", f"The run has failed: {why}.")


def _cancelled(group: _Group) -> bool:
    return all(run.cancelling for run in group.runs)
