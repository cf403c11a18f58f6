"""The process of runs that began over HTTP: `python -m weft_gateway.runs.flow_worker MEMORY`.

Templates, queries and rows of clients are handled here, with limited memory, so that they cannot
stop the gateway. The gateway makes the calls. A process has one run, or those of a tenant's
workflow that were joined; each has its dispatch, journal and budget. It ends with the gateway.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from weft_run.io.budget import Budget
from weft_run.io.errors import JobError
from weft_run.io.job import Job, Opened
from weft_run.io.journal import DiskError, Journal, JournalError, JournalLocked
from weft_run.io.rows import RowsError, write_output
from weft_run.io.runner import Runner
from weft_run.io.tools import Tools
from weft_run.language.check import WorkflowError
from weft_run.language.graph import Workflow
from weft_run.plan.commands import ANY, Usage
from weft_run.plan.dispatch import Counts, Dispatch
from weft_run.plan.rewrite import rewrite

from weft_gateway.runs.flow_caller import PipeCaller, RunCaller, Send
from weft_gateway.runs.flow_check import check, load_allowed
from weft_gateway.runs.flow_wire import (
    INPUT,
    LENGTH,
    OUTPUT,
    WORKFLOW,
    CallEnded,
    Cancel,
    Check,
    FromWorker,
    InputRead,
    Over,
    Progress,
    Ready,
    Start,
    ToWorker,
    Wrong,
    frame,
    to_worker,
)

_REPORT_S: Final = 0.2
_NICENESS: Final = 10
# Answers in the memory of one run. Its journal has the others, and the process those of all runs.
_CACHE_BYTES: Final = 4 << 20
# A gateway that was killed has a worker that ends a moment later, and holds the journal until then.
_LOCK_TRIES: Final = 20
_LOCK_PAUSE_S: Final = 0.5


class Shared:
    """The parts that the runs of a process share. rows: the number of their rows."""

    def __init__(self, start: Start, send: Send) -> None:
        rules = start.rules
        connections = {name: Path(file) for name, file in rules.connections.items()}
        self.caller = PipeCaller(send, start.most_bytes)
        self.tools = Tools(connections=connections, hosts=rules.hosts, python=False)
        self.rows = 0


class FlowRun:
    """One run."""

    def __init__(self, start: Start, send: Send, shared: Shared) -> None:
        self._start = start
        self._send = send
        self._shared = shared
        self._runner: Runner | None = None
        self._cancelled = start.finish
        self._full = False
        self._ends: list[int] = []
        self._counts: dict[str, Counts] = {}
        # The figures of the journal, None while it is not open.
        self._before: tuple[int, int, int] | None = None

    def cancel(self) -> None:
        """Stop. Rows that have ended are written."""
        self._cancelled = True
        if self._runner is not None:
            self._runner.cancel()

    async def run(self) -> FromWorker:
        """Run to the end, and return the last message."""
        run = self._start.run
        try:
            return Over(run, await self._run())
        except (WorkflowError, RowsError, JobError) as error:
            return Wrong("invalid_input", self._shown(error), run)
        except (JournalError, OSError) as error:
            number = error.errno or 0 if isinstance(error, DiskError | OSError) else 0
            return Wrong("storage_failed", self._shown(error), run, number)
        finally:
            self.report()

    def _shown(self, error: Exception) -> str:
        """Return a message with the names that the client knows."""
        start = self._start
        text = str(error).replace(f"{start.folder}/{INPUT}", start.input or INPUT)
        return text.replace(f"{start.folder}/", "")

    async def _run(self) -> str:
        start, folder = self._start, Path(self._start.folder)
        text = (folder / WORKFLOW).read_text(encoding="utf-8")
        workflow = await asyncio.to_thread(load_allowed, text, start.file, start.rules)
        output = folder / OUTPUT
        job = Job(workflow, folder / INPUT, output)
        opened = await self._opened(job)
        journal = opened.journal
        try:
            if opened.total > start.most_rows:
                raise JobError(f"the input has {opened.total} rows; a run has at most "
                               f"{start.most_rows}")  # fmt: skip
            self._before = journal.counts()[:3]
            self._send(InputRead(start.run, opened.total))
            reason = "cancelled"
            if not self._cancelled:
                reason = await self._rows(opened, rewrite(workflow).workflow)
            await asyncio.to_thread(write_output, output, journal.rows(), workflow.outputs)
        finally:
            # The gateway deletes the journal together with the folder.
            journal.close()
        return reason

    async def _opened(self, job: Job) -> Opened:
        tries = 0
        while True:
            resume = job.journal_path.exists()
            try:
                return await asyncio.to_thread(Opened, job, resume=resume)
            except JournalLocked:
                tries += 1
                if tries == _LOCK_TRIES:
                    raise
            await asyncio.sleep(_LOCK_PAUSE_S)

    async def _rows(self, opened: Opened, workflow: Workflow) -> str:
        start, journal, shared = self._start, opened.journal, self._shared
        workflow = replace(workflow, model=workflow.model or start.model)
        caller = RunCaller(shared.caller, workflow, shared.rows)
        shared.rows += opened.total
        _, failed, used, _ = journal.counts()
        windows = {ANY: start.calls}
        gate = Budget(start.tokens, start.errors, used, failed, is_free=journal.knows)
        machine = Dispatch(workflow, windows, plan=caller, gate=gate, cache_bytes=_CACHE_BYTES)
        self._counts = machine.counts
        rows = takewhile(lambda _: not self._is_full(journal), opened.rows())
        self._runner = Runner(machine, rows, journal, caller, shared.tools, windows, self._ended)
        watching = asyncio.create_task(self._watch(journal, self._runner))
        try:
            outcome = await self._runner.run()
        finally:
            watching.cancel()
        return "storage" if self._full and outcome.rows < opened.total else outcome.reason

    def _is_full(self, journal: Journal) -> bool:
        """Whether the results have reached their limit."""
        self._full = self._full or journal.size() > self._start.storage
        return self._full

    async def _watch(self, journal: Journal, runner: Runner) -> None:
        """Stop the rows in progress, too, when the results have reached their limit."""
        full = False
        # The run meets an error of the journal, too.
        with suppress(JournalError):
            while not full:
                await asyncio.sleep(_REPORT_S)
                full = self._is_full(journal)
            runner.cancel()

    def _ended(self, row: int, failed: bool) -> None:
        self._ends.append(2 * row + failed)

    def report(self) -> None:
        """Send the figures, once the journal with those of earlier processes is open."""
        if self._before is None:
            return
        ends, self._ends = self._ends, []
        one = self._runner
        rows, failed, tokens = self._before if one is None else (one.rows, one.failed, one.tokens)
        operators = {name: _figures(counts) for name, counts in self._counts.items()}
        self._send(Progress(self._start.run, ends, rows, failed, tokens, operators))


def _figures(counts: Counts) -> dict[str, int]:
    found = asdict(counts)
    del found["usage"]
    usage: Usage = counts.usage
    return found | {
        "prompt_tokens": usage.prompt,
        "cached_tokens": usage.cached,
        "output_tokens": usage.output,
    }


class _Main:
    """The messages of the process."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._loop = asyncio.get_running_loop()
        self._begun = asyncio.Event()
        self._shared: Shared | None = None
        self._runs: dict[str, FlowRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Check workflows until a run begins, then serve runs until the gateway ends it."""
        threading.Thread(target=self._read, daemon=True).start()
        self.send(Ready())
        await self._begun.wait()
        while True:
            for run in self._runs.values():
                run.report()
            if not self._runs:
                self.send(Ready())
            await asyncio.sleep(_REPORT_S)

    def _begin(self, start: Start) -> None:
        self._shared = self._shared or Shared(start, self.send)
        run = self._runs[start.run] = FlowRun(start, self.send, self._shared)
        task = asyncio.create_task(self._serve(start.run, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, name: str, run: FlowRun) -> None:
        try:
            end = await run.run()
        except BaseException:
            # The gateway learns of an error of the code by the end of the process.
            traceback.print_exc()
            os._exit(1)
        del self._runs[name]
        self.send(end)

    def send(self, message: FromWorker) -> None:
        """Send a message. Waits while the gateway does not read."""
        raw = memoryview(frame(message))
        while raw:
            raw = raw[os.write(self._outgoing, raw) :]

    def _read(self) -> None:
        with os.fdopen(self._incoming, "rb") as file:
            while len(head := file.read(LENGTH)) == LENGTH:
                message = to_worker(file.read(int.from_bytes(head, "big")))
                self._loop.call_soon_threadsafe(self._came, message)
        # The gateway has ended. Its next process continues the run.
        os._exit(1)

    def _came(self, message: ToWorker) -> None:
        if isinstance(message, Check):
            self.send(check(message))
        elif isinstance(message, Start):
            # At once: a cancellation may follow in the same turn of the loop.
            self._begin(message)
            self._begun.set()
        elif isinstance(message, CallEnded) and self._shared is not None:
            self._shared.caller.answered(message)
        elif isinstance(message, Cancel) and message.run in self._runs:
            self._runs[message.run].cancel()


async def _main(incoming: int, outgoing: int) -> None:
    await _Main(incoming, outgoing).serve()


def main() -> None:
    """Serve one gateway. The argument is the memory limit in bytes."""
    memory = int(sys.argv[1])
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.nice(_NICENESS)
    incoming, outgoing = os.dup(0), os.dup(1)
    # Only frames may reach the gateway.
    os.dup2(2, 1)
    asyncio.run(_main(incoming, outgoing))
    # A thread still reads.
    os._exit(0)


if __name__ == "__main__":
    main()
