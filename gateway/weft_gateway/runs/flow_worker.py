"""The process of a run that began over HTTP: `python -m weft_gateway.runs.flow_worker MEMORY`.

Templates, queries and rows of clients are handled here, with limited memory, so that they cannot
stop the gateway. The gateway makes the calls. This process ends when the gateway does.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import orjson

from weft_gateway.runs.budget import Budget
from weft_gateway.runs.caller import Answer, body_of, read_answer
from weft_gateway.runs.errors import CallFailed, JobError
from weft_gateway.runs.flow_rules import Rules, models, refusals
from weft_gateway.runs.flow_wire import (
    INPUT,
    LENGTH,
    OUTPUT,
    WORKFLOW,
    Ask,
    Cancel,
    Check,
    Checked,
    Drop,
    FromWorker,
    Opened,
    Over,
    Progress,
    Ready,
    Start,
    ToWorker,
    Wrong,
    frame,
    to_worker,
)
from weft_gateway.runs.flow_wire import Answer as Answered
from weft_gateway.runs.job import Job, bodies, needs_model
from weft_gateway.runs.job import Opened as OpenedJob
from weft_gateway.runs.journal import JournalError
from weft_gateway.runs.rows import RowsError, write_output
from weft_gateway.runs.runner import Runner
from weft_gateway.runs.tools import Tools
from weft_gateway.workflows.check import WorkflowError
from weft_gateway.workflows.commands import ANY, Failure, Usage, Work
from weft_gateway.workflows.dispatch import Counts, Dispatch
from weft_gateway.workflows.graph import Llm, Workflow
from weft_gateway.workflows.requests import LlmRequest
from weft_gateway.workflows.rewrite import rewrite
from weft_gateway.workflows.spec import load

# Bodies of calls that the gateway has and has not answered yet. A longer one is alone.
_MOST_BYTES: Final = 64 << 20
_REPORT_S: Final = 0.2
_NICENESS: Final = 10
# A gateway that was killed has a worker that ends a moment later, and holds the journal until then.
_LOCK_TRIES: Final = 20
_LOCK_PAUSE_S: Final = 0.5
Send = Callable[[FromWorker], None]


def check(asked: Check) -> Checked | Wrong:
    """Check a workflow, and explain it."""
    try:
        workflow = _load(asked.text, asked.file, asked.rules)
    except WorkflowError as error:
        return Wrong("invalid_workflow", str(error))
    done = rewrite(workflow)
    calls = sum(isinstance(body, Llm) for _, body in bodies(done.workflow.operators))
    named = [
        (name, "" if one is None else one.name, 1 if one is None else one.line)
        for name, one in models(done.workflow)
    ]
    inputs = {name: str(kind) for name, kind in workflow.inputs.items()}
    return Checked(_plan(workflow), inputs, named, calls, needs_model(done.workflow))


def _load(text: str, file: str, rules: Rules) -> Workflow:
    """Compile a workflow from HTTP. Raises WorkflowError."""
    workflow = load(text, file)
    wrong = refusals(workflow, rules, file)
    if wrong:
        raise WorkflowError("\n".join(wrong))
    return workflow


def _plan(workflow: Workflow) -> dict[str, Any]:
    """Return what runs, after rewrites."""
    done = rewrite(workflow)
    return {
        "name": workflow.name,
        "model": workflow.model or None,
        "inputs": {name: str(kind) for name, kind in workflow.inputs.items()},
        "outputs": dict(done.workflow.outputs),
        "operators": [
            {
                "name": one.name,
                "kind": type(one.body).__name__.lower(),
                "for_each": one.for_each,
                "reads": list(one.inputs),
            }
            for one in done.workflow.operators
        ],
        "rewrites": [
            {
                "kind": one.kind.value,
                "operator": one.operator,
                "reason": one.reason,
                "into": one.into or None,
            }
            for one in done.rewrites
        ],
    }


class PipeCaller:
    """Passes the calls of a run to the gateway. most_bytes: of a body."""

    def __init__(self, send: Send, most_bytes: int) -> None:
        self._send = send
        self._most_bytes = most_bytes
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._bytes = 0
        self._room = asyncio.Condition()

    async def call(self, work: Work, refused: Callable[[], None]) -> Answer:
        """Make a call. The gateway repeats it. Raises CallFailed."""
        request = work.request
        assert isinstance(request, LlmRequest)
        body = orjson.dumps(body_of(request))
        if len(body) > self._most_bytes:
            what = f"the request has more than {self._most_bytes} bytes"
            raise CallFailed(Failure("too_large", what, attempts=0, certain=True))
        size = len(body)
        async with self._room:
            await self._room.wait_for(lambda: not self._bytes or self._bytes + size <= _MOST_BYTES)
            self._bytes += size
        try:
            return await self._answer(work, request.model, body)
        finally:
            self._bytes -= size
            async with self._room:
                self._room.notify_all()

    async def _answer(self, work: Work, model: str, body: bytes) -> Answer:
        found = self._waiting[work.number] = asyncio.get_running_loop().create_future()
        self._send(Ask(work.number, work.row, model, work.attempts, body))
        try:
            answer = await found
        except asyncio.CancelledError:
            self._send(Drop(work.number))
            raise
        finally:
            del self._waiting[work.number]
        if answer.code:
            raise CallFailed(Failure(answer.code, answer.message, answer.attempts, answer.certain))
        return read_answer(answer.body)

    def answered(self, answer: Answered) -> None:
        """The gateway has an answer. That of an aborted call is ignored."""
        found = self._waiting.get(answer.number)
        if found is not None and not found.done():
            found.set_result(answer)

    async def aclose(self) -> None:
        """The gateway ends the run's program."""


class FlowRun:
    """One run."""

    def __init__(self, start: Start, send: Send) -> None:
        self._start = start
        self._send = send
        self.caller = PipeCaller(send, start.most_bytes)
        self._runner: Runner | None = None
        self._cancelled = start.finish
        self._ends: list[int] = []
        self._counts: dict[str, Counts] = {}
        self._before = (0, 0, 0)

    def cancel(self) -> None:
        """Stop. Rows that have ended are written."""
        self._cancelled = True
        if self._runner is not None:
            self._runner.cancel()

    async def run(self) -> FromWorker:
        """Run to the end, and return the last message."""
        reporting = asyncio.create_task(self._report())
        try:
            return Over(await self._run())
        except (WorkflowError, RowsError, JobError) as error:
            message = str(error).replace(f"{self._start.folder}/", "")
            return Wrong("invalid_input", message)
        except (JournalError, OSError) as error:
            return Wrong("storage_failed", str(error).replace(f"{self._start.folder}/", ""))
        finally:
            reporting.cancel()
            self._progress()

    async def _run(self) -> str:
        start, folder = self._start, Path(self._start.folder)
        text = (folder / WORKFLOW).read_text(encoding="utf-8")
        workflow = await asyncio.to_thread(_load, text, start.file, start.rules)
        output = folder / OUTPUT
        job = Job(workflow, folder / INPUT, output)
        opened = await self._opened(job)
        journal = opened.journal
        try:
            if opened.stop > start.most_rows:
                raise JobError(f"the input has {opened.stop} rows; a run has at most "
                               f"{start.most_rows}")  # fmt: skip
            self._before = journal.counts()
            self._send(Opened(opened.stop))
            reason = "cancelled"
            if not self._cancelled:
                reason = await self._rows(opened, rewrite(workflow).workflow)
            await asyncio.to_thread(write_output, output, journal.rows(), workflow.outputs)
        finally:
            # The gateway deletes the journal together with the folder.
            journal.close()
        return reason

    async def _opened(self, job: Job) -> OpenedJob:
        tries = 0
        while True:
            resume = job.journal_path.exists()
            try:
                return await asyncio.to_thread(OpenedJob, job, resume=resume)
            except JournalError:
                tries += 1
                if tries == _LOCK_TRIES:
                    raise
            await asyncio.sleep(_LOCK_PAUSE_S)

    async def _rows(self, opened: OpenedJob, workflow: Workflow) -> str:
        start, journal, rules = self._start, opened.journal, self._start.rules
        workflow = replace(workflow, model=workflow.model or start.model)
        connections = {name: Path(file) for name, file in rules.connections.items()}
        tools = Tools(connections=connections, hosts=rules.hosts, python=False)
        _, failed, used = journal.counts()
        windows = {ANY: start.calls}
        gate = Budget(start.tokens, start.errors, used, failed)
        machine = Dispatch(workflow, windows, gate=gate)
        self._counts = machine.counts
        self._runner = Runner(
            machine, opened.rows(), journal, self.caller, tools, windows, self._ended
        )
        try:
            return (await self._runner.run()).reason
        finally:
            await tools.aclose()

    def _ended(self, row: int, failed: bool) -> None:
        self._ends.append(2 * row + failed)

    async def _report(self) -> None:
        while True:
            self._progress()
            await asyncio.sleep(_REPORT_S)

    def _progress(self) -> None:
        ends, self._ends = self._ends, []
        one = self._runner
        rows, failed, tokens = self._before if one is None else (one.rows, one.failed, one.tokens)
        operators = {name: _figures(counts) for name, counts in self._counts.items()}
        self._send(Progress(ends, rows, failed, tokens, operators))


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
        self._first: asyncio.Future[ToWorker] = self._loop.create_future()
        self._run: FlowRun | None = None

    async def serve(self) -> None:
        """Check workflows, or run one to its end."""
        threading.Thread(target=self._read, daemon=True).start()
        self.send(Ready())
        while not isinstance(first := await self._first, Start):
            self._first = self._loop.create_future()
            if isinstance(first, Check):
                self.send(check(first))
        self._run = FlowRun(first, self.send)
        self.send(await self._run.run())

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
        if not self._first.done():
            self._first.set_result(message)
        elif self._run is not None and isinstance(message, Answered):
            self._run.caller.answered(message)
        elif self._run is not None and isinstance(message, Cancel):
            self._run.cancel()


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
