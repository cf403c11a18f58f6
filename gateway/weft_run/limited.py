"""`weft run` as a limited process of a gateway: `python -m weft_run.limited`.

The first line of its input is the job, JSON; a further line cancels a run: `{"cancel": ID}`. It
prints one line of JSON for each report. A job has one run, or several of one workflow, whose rows
are joined: they have one journal, and each has its own output.

Templates, queries and rows of other people are handled here, so the kernel limits the memory, the
processor time of a step, the sizes of files and the number of open ones. Python operators and
graphs do not run, and databases are read only. The process dies with the gateway.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from weft_run.io.errors import JobError
from weft_run.io.http_rules import MOST_OPERATORS, refusals
from weft_run.io.job import Job, Opened
from weft_run.io.journal import DiskError, JournalError, JournalLocked, rows_of
from weft_run.io.local import Ended, Options, run
from weft_run.io.rows import Input, RowsError, write_output
from weft_run.io.runner import Runner
from weft_run.language.check import WorkflowError
from weft_run.language.spec import load

_OPEN_FILES: Final = 1024
_NICENESS: Final = 10
_REPORT_S: Final = 0.2
_PR_SET_PDEATHSIG: Final = 1
# A process that was killed holds the journal for a moment.
_LOCK_TRIES: Final = 20
_LOCK_PAUSE_S: Final = 0.5
# A file this close to its limit could not take the next transaction, bytes.
_NEXT_BYTES: Final = 12 << 20
_FILE: Final = "workflow.yaml"
_ROWS: Final = "rows.jsonl"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(slots=True, eq=False)
class Member:
    """A run of the process. input: the name of its rows in messages. waits: a later process has its
    turn. first, rows: its place in the joined rows. completed, failed: rows that have ended. ends:
    those that were not reported yet, twice the number, plus 1 if the row has failed. tokens: of
    calls of this process. known: whether these figures are known. shown: whether they were
    reported. over: whether its end is.
    """

    run: str
    folder: Path
    input: str
    cancelled: bool
    waits: bool
    first: int = 0
    rows: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    ends: list[int] = field(default_factory=list)
    known: bool = False
    shown: bool = False
    over: bool = False

    @property
    def place(self) -> range:
        """The numbers of its rows in the process."""
        return range(self.first, self.first + self.rows)


class Limited:
    """The runs of one process."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._folder = Path(job["folder"])
        self._members = [
            Member(one.pop("run"), Path(one.pop("folder")), **one) for one in job["members"]
        ]
        self._output = self._folder / "all.jsonl"
        self._runner: Runner | None = None
        self._publishing: set[asyncio.Task[None]] = set()
        self._outputs: tuple[str, ...] = ()

    async def run(self) -> None:
        """Run all to their ends."""
        try:
            reason = await self._run()
        except (WorkflowError, RowsError, JobError) as error:
            code = "invalid_workflow" if isinstance(error, WorkflowError) else "invalid_input"
            for member in self._left:
                self._wrong(member, code, error)
            return
        except (JournalError, OSError) as error:
            number = error.errno or 0 if isinstance(error, DiskError | OSError) else 0
            if not self._is_full():
                for member in self._left:
                    self._wrong(member, "storage_failed", error, number)
                return
            reason = "storage"
        await asyncio.gather(*self._publishing)
        for member in self._left:
            await self._publish(member, reason)

    @property
    def _left(self) -> list[Member]:
        return [member for member in self._members if not member.over]

    async def _run(self) -> str:
        job = self._job
        # In this thread: its processor time is limited.
        text = (self._folder / _FILE).read_text(encoding="utf-8")
        workflow = load(text, _FILE, MOST_OPERATORS)
        wrong = refusals(workflow, job["connections"], job["hosts"], _FILE)
        if wrong:
            raise WorkflowError("\n".join(wrong))
        self._outputs = tuple(workflow.outputs)
        types = {name: str(kind) for name, kind in workflow.inputs.items()}
        input_ = await asyncio.to_thread(self._joined, types)
        if not self._left:
            return "done"
        journal = self._output.with_name(f"{self._output.name}.journal")
        if job["finish"] and not journal.exists():
            return "done"
        connections = {name: Path(file) for name, file in job["connections"].items()}
        opened = await self._opened(Job(workflow, input_, self._output, connections,
                                        tuple(job["hosts"])))  # fmt: skip
        self._read(opened)
        if job["finish"] or all(member.cancelled for member in self._left):
            opened.journal.close()
            return "cancelled"
        return (await self._rows(opened)).outcome.reason

    async def _rows(self, opened: Opened) -> Ended:
        job = self._job
        options = Options(
            job["gateway"], job["token"], None, job["tokens"], job["errors"], python=False,
            writes=False,
        )  # fmt: skip
        places = [member.place for member in self._left if not member.cancelled]
        opened.wanted = lambda number: any(number in place for place in places)

        @contextmanager
        def watch(runner: Runner, _: int) -> Iterator[None]:
            self._runner = runner
            runner.row_ended, runner.call_ended = self._ended, self._used
            for member in self._left:
                self._complete(member)
                if member.cancelled:
                    self.cancel(member.run)
            try:
                yield
            finally:
                self._runner = None

        return await run(opened.job, opened, options, watch)

    def _joined(self, types: dict[str, str]) -> Path:
        """Find the rows of the runs. Returns the file with all of them."""
        places = self._folder / "members.json"
        known = json.loads(places.read_bytes()) if places.exists() else None
        if known is None:
            known, first = {}, 0
            for member in self._left:
                try:
                    rows = Input(member.folder / _ROWS, types).scan().number
                    if rows > self._job["rows"]:
                        most = self._job["rows"]
                        raise RowsError(f"the input has {rows} rows; a run has at most {most}")
                except RowsError as error:
                    self._wrong(member, "invalid_input", error)
                else:
                    known[member.run] = [first, rows]
                    first += rows
            if len(self._members) > 1:
                self._join(list(known))
            _write(places, json.dumps(known).encode())
        self._members = [member for member in self._left if not member.waits]
        for member in self._members:
            member.first, member.rows = known[member.run]
        joined = self._folder / "joined.jsonl"
        return joined if joined.exists() else self._folder / _ROWS

    def _join(self, runs: list[str]) -> None:
        joined = self._folder / "joined.jsonl"
        partial = joined.with_suffix(".partial")
        with partial.open("wb") as target:
            for member in self._members:
                if member.run in runs:
                    with (member.folder / _ROWS).open("rb") as source:
                        for number, line in enumerate(source):
                            text = line.strip() if number else line.strip().removeprefix(
                                _BYTE_ORDER_MARK)  # fmt: skip
                            target.write(text + b"\n")
        partial.replace(joined)

    async def _opened(self, job: Job) -> Opened:
        tries, resume = 0, job.journal_path.exists()
        while True:
            try:
                return await asyncio.to_thread(
                    Opened, job, resume=resume, program=self._job["program"]
                )
            except JournalLocked:
                tries += 1
                if tries == _LOCK_TRIES:
                    raise
            await asyncio.sleep(_LOCK_PAUSE_S)

    def _read(self, opened: Opened) -> None:
        """Take the figures of an earlier process."""
        for member in self._left:
            ended, member.failed = opened.journal.ended(member.place)
            member.completed, member.known = ended - member.failed, True

    def _ended(self, row: int, failed: bool) -> None:
        for member in self._left:
            if row in member.place:
                member.failed += failed
                member.completed += not failed
                member.ends.append(2 * (row - member.first) + failed)
                self._complete(member)

    def _used(self, row: int, tokens: int) -> None:
        for member in self._members:
            if row in member.place:
                member.tokens += tokens

    def _complete(self, member: Member) -> None:
        """End a run of several whose rows have all ended."""
        if len(self._members) > 1 and member.completed + member.failed == member.rows:
            self._begin_publishing(member, "done")

    def _begin_publishing(self, member: Member, reason: str) -> None:
        task = asyncio.create_task(self._publish(member, reason))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _publish(self, member: Member, reason: str) -> None:
        """Write the rows of a run that have ended, and report its end."""
        if member.over:
            return
        member.over = True
        journal = self._output.with_name(f"{self._output.name}.journal")
        if journal.exists():
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            rows = rows_of(journal, member.place)
            target = member.folder / "output.jsonl"
            await asyncio.to_thread(write_output, target, rows, self._outputs)
        if member.known:
            self._report_of(member)
        _send({"run": member.run, "over": reason})

    def cancel(self, run: str) -> None:
        """Stop a run. Rows that have ended are written."""
        for member in self._left:
            if member.run == run:
                member.cancelled = True
                if self._runner is None:
                    continue
                if all(one.cancelled for one in self._left):
                    self._runner.cancel()
                else:
                    self._runner.drop(member.place)
                    self._begin_publishing(member, "cancelled")

    def _wrong(self, member: Member, code: str, error: Exception, number: int = 0) -> None:
        """Report an error with the names that the client knows."""
        member.over = True
        text = str(error).replace(f"{member.folder}/{_ROWS}", member.input)
        text = text.replace(f"{self._folder}/joined.jsonl", "rows")
        text = text.replace(f"{self._folder}/", "")
        _send({"run": member.run, "wrong": code, "message": text, "errno": number})

    def _is_full(self) -> bool:
        """Whether a file has reached its limit."""
        most = self._job["file_bytes"] - _NEXT_BYTES
        return any(one.stat().st_size >= most for one in self._folder.iterdir() if one.is_file())

    def report(self) -> None:
        """Send the figures."""
        for member in self._left:
            if member.known and (member.ends or not member.shown):
                self._report_of(member)

    @staticmethod
    def _report_of(member: Member) -> None:
        member.shown, ends, member.ends = True, member.ends, []
        _send({
            "run": member.run, "rows": member.rows, "completed": member.completed,
            "failed": member.failed, "tokens": member.tokens, "ends": ends,
        })  # fmt: skip


def _write(path: Path, content: bytes) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(path)


def _send(report: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(report)}\n")
    sys.stdout.flush()


def _limit(job: dict[str, Any]) -> None:
    """Limit this process, and let it die with the gateway."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    most = job["file_bytes"]
    for kind, limits in (
        (resource.RLIMIT_AS, (job["memory_bytes"],) * 2),
        # The journal and its log are written first, then the output.
        (resource.RLIMIT_FSIZE, (most, 4 * most)),
        (resource.RLIMIT_NOFILE, (_OPEN_FILES,) * 2),
        (resource.RLIMIT_CORE, (0, 0)),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, limits)
    _begin_step(job["step_s"])
    os.nice(_NICENESS)


def _begin_step(most_s: int) -> None:
    """Give the next step its processor time. Without another call, SIGXCPU ends the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + most_s, hard))


def _listen(loop: asyncio.AbstractEventLoop, runs: Limited) -> None:
    """Take the lines of the gateway, to its end. Its next process continues the runs."""
    for line in sys.stdin.buffer:
        loop.call_soon_threadsafe(runs.cancel, json.loads(line)["cancel"])
    os._exit(1)


async def _main(job: dict[str, Any]) -> None:
    runs, loop = Limited(job), asyncio.get_running_loop()
    threading.Thread(target=_listen, args=(loop, runs), daemon=True).start()

    async def steps() -> None:
        while True:
            _begin_step(job["step_s"])
            runs.report()
            await asyncio.sleep(_REPORT_S)

    stepping = loop.create_task(steps())
    await runs.run()
    stepping.cancel()


def main() -> None:
    """Serve one job."""
    job = json.loads(sys.stdin.buffer.readline())
    _limit(job)
    try:
        asyncio.run(_main(job))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    # A thread still reads.
    os._exit(0)


if __name__ == "__main__":
    main()
