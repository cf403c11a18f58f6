"""`weft run` as a limited process of a gateway: `python -m weft_run.limited`.

Its input is the job, a line of JSON. It prints one line of JSON for each report. A job has one run,
or several of one workflow, whose rows are in one file: they have one journal and one end, and each
has its own output. SIGTERM cancels all.

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
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from weft_run.io.errors import JobError
from weft_run.io.http_rules import MOST_OPERATORS, refusals
from weft_run.io.job import Job, Opened
from weft_run.io.journal import DiskError, JournalError, JournalLocked, rows_of
from weft_run.io.local import Options, run
from weft_run.io.rows import RowsError, write_output
from weft_run.io.runner import Runner
from weft_run.language.check import WorkflowError
from weft_run.language.spec import load

_OPEN_FILES: Final = 1024
_NICENESS: Final = 10
_REPORT_S: Final = 0.2
_PR_SET_PDEATHSIG: Final = 1
# A file this close to its limit could not take the next transaction, bytes.
_NEXT_BYTES: Final = 12 << 20
# Characters of a message.
_SHOWN: Final = 4096
_FILE: Final = Path("workflow.yaml")
_OUTPUT: Final = Path("all.jsonl")


class Limited:
    """The runs of one process. Their figures are rows, rows that have ended well, rows that have
    failed, and tokens of calls of this process.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._places: dict[str, range] = {}
        self._figures: dict[str, list[int]] = {}
        self._changed = False
        self._outputs: tuple[str, ...] = ()

    async def run(self) -> None:
        """Run all to their ends."""
        try:
            reason = await self._run()
        except (WorkflowError, RowsError, JobError) as error:
            wrong = isinstance(error, WorkflowError)
            _refuse("invalid_workflow" if wrong else "invalid_input", error)
            return
        except (JournalError, OSError) as error:
            if not self._is_full():
                passes = isinstance(error, DiskError | JournalLocked | OSError)
                _refuse("again" if passes else "storage_failed", error)
                return
            reason = "storage"
        await asyncio.to_thread(self._write)
        self.report()
        _send({"over": reason})

    async def _run(self) -> str:
        job = self._job
        # In this thread: its processor time is limited.
        workflow = load(_FILE.read_text(encoding="utf-8"), _FILE.name, MOST_OPERATORS)
        wrong = refusals(workflow, job["connections"], job["hosts"], _FILE.name)
        if wrong:
            raise WorkflowError("\n".join(wrong))
        self._outputs = tuple(workflow.outputs)
        connections = {name: Path(file) for name, file in job["connections"].items()}
        done = Job(workflow, Path(job["input"]), _OUTPUT, connections, tuple(job["hosts"]))
        resume = done.journal_path.exists()
        opened = await asyncio.to_thread(Opened, done, resume=resume, program=job["program"])
        if opened.total > job["rows"]:
            what = f"the input has {opened.total} rows; a run has at most {job['rows']}"
            raise RowsError(what)
        for name, first, rows in job["runs"]:
            place = range(first, first + (opened.total if rows is None else rows))
            ended, failed = opened.journal.ended(place)
            self._places[name] = place
            self._figures[name] = [len(place), ended - failed, failed, 0]
        self._changed = True
        if job["finish"]:
            opened.journal.close()
            return "cancelled"
        options = Options(
            job["gateway"], job["token"], None, job["tokens"], job["errors"], python=False,
            writes=False,
        )  # fmt: skip
        return (await run(done, opened, options, self._watch)).outcome.reason

    @contextmanager
    def _watch(self, runner: Runner, _: int) -> Iterator[None]:
        runner.row_ended = lambda row, failed: self._count(row, 1 + failed, 1)
        runner.call_ended = lambda row, tokens: self._count(row, 3, tokens)
        # The gateway cancels all runs at once.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.cancel)
        yield

    def _count(self, row: int, figure: int, more: int) -> None:
        for name, place in self._places.items():
            if row in place:
                self._figures[name][figure] += more
                self._changed = True

    def _write(self) -> None:
        """Write the rows of each run that have ended."""
        journal = _OUTPUT.with_name(f"{_OUTPUT.name}.journal")
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        for name, place in self._places.items() if journal.exists() else ():
            write_output(Path(f"{name}.jsonl"), rows_of(journal, place), self._outputs)

    def _is_full(self) -> bool:
        """Whether a file has reached its limit."""
        most = self._job["file_bytes"] - _NEXT_BYTES
        return any(one.stat().st_size >= most for one in Path().iterdir() if one.is_file())

    def report(self) -> None:
        """Send the figures if they have changed."""
        if self._changed:
            self._changed = False
            _send({"figures": self._figures})


def _refuse(code: str, error: Exception) -> None:
    _send({"wrong": code, "message": str(error)[:_SHOWN]})


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
    os.nice(_NICENESS)


def _begin_step(most_s: int) -> None:
    """Give the next step its processor time. Without another call, SIGXCPU ends the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + most_s, hard))


async def _main(job: dict[str, Any]) -> None:
    runs = Limited(job)

    async def steps() -> None:
        while True:
            _begin_step(job["step_s"])
            runs.report()
            await asyncio.sleep(_REPORT_S)

    stepping = asyncio.create_task(steps())
    await runs.run()
    stepping.cancel()


def main() -> None:
    """Serve one job."""
    job = json.loads(sys.stdin.buffer.readline())
    _limit(job)
    _begin_step(job["step_s"])
    asyncio.run(_main(job))
    # A slow end of the interpreter would hold the place of another run.
    os._exit(0)


if __name__ == "__main__":
    main()
