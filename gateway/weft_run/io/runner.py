"""Runs a workflow: carries out the commands of `workflows.dispatch` with calls, tools and files.

One task exists per call or tool in flight, none per row. Each result is durable in the journal
before the machine hears of it, and counts as in flight until then: a killed run repeats at most the
calls of its windows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, Final, NamedTuple

from weft_run.io.caller import Caller
from weft_run.io.errors import CallFailed
from weft_run.io.journal import SPENT, Journal, Record, RowEnd, State, row_of
from weft_run.io.pace import Pace
from weft_run.io.tools import Tools
from weft_run.language.requests import ChatRequest, LlmRequest
from weft_run.plan.commands import (
    Abort,
    Command,
    Failure,
    Finish,
    Read,
    Reply,
    Row,
    RunTool,
    Send,
    Usage,
    Work,
    WriteRow,
)
from weft_run.plan.dispatch import Dispatch

# Finished rows, and bytes of results, that may wait for the journal.
_MOST_WRITES: Final = 4096
_MOST_BYTES: Final = 16 << 20
_UNKNOWN: Final = Failure(
    "unknown",
    "the run was interrupted while this tool ran; it may have had its effect, and is not repeated",
)


class Outcome(NamedTuple):
    """The end of a run. reason: see `commands.Finish`. rows, failed, unmet: that have ended, of the
    whole run; see `commands.Row`.
    """

    reason: str
    rows: int
    failed: int
    unmet: int = 0


class Runner:
    """One run. Rows come from `rows`, without those that the journal contains."""

    def __init__(
        self,
        machine: Dispatch,
        rows: Iterator[tuple[int, Mapping[str, Any]]],
        journal: Journal,
        caller: Caller,
        tools: Tools,
        windows: Mapping[str, int],
    ) -> None:
        """windows: those of the machine; refusals shrink them for a time."""
        # Called with each row that is in the journal, and whether it has failed.
        self.row_ended: Callable[[int, bool], None] = lambda row, failed: None
        # Called with the row of a call, and its tokens.
        self.call_ended: Callable[[int, int], None] = lambda row, tokens: None
        self._pace = Pace(windows)
        self._machine = machine
        self._rows = rows
        self._journal = journal
        self._caller = caller
        self._tools = tools
        self._works: dict[int, asyncio.Task[None]] = {}
        self._unsafe: set[int] = set()
        self._others: set[asyncio.Task[None]] = set()
        self._asks: dict[int, Future[Any]] = {}
        self._numbers = count()
        self._context = copy_context()
        self._closing = False
        self._error: BaseException | None = None
        self._over: asyncio.Future[str] | None = None
        self.rows, self.failed, self.tokens, self.unmet = journal.counts()

    async def run(self) -> Outcome:
        """Run to the end. Raises JournalError and OSError if files cannot be used; all finished
        work stays in the journal.
        """
        self._over = asyncio.get_running_loop().create_future()
        try:
            self._carry_out(self._machine.start())
            reason = await self._over
        finally:
            self._closing = True
            for number, task in self._works.items():
                # The result of a tool that must not run twice belongs into the journal.
                if number not in self._unsafe:
                    task.cancel()
            for ask in self._asks.values():
                ask.cancel()
            await asyncio.gather(*self._works.values(), *self._others, return_exceptions=True)
        # The last rows are written after the machine has finished.
        if self._error is not None:
            raise self._error
        return Outcome(reason, self.rows, self.failed, self.unmet)

    def cancel(self) -> None:
        """Stop: abort all calls. Finished work stays in the journal."""
        if self._over is not None and not self._over.done():
            self._carry_out(self._machine.cancel())

    def _spend(self, row: int, tokens: int) -> None:
        self.tokens += tokens
        self.call_ended(row, tokens)

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(work) | RunTool(work):
                    task = self._works[work.number] = asyncio.create_task(self._work(work))
                    task.add_done_callback(partial(self._worked, work.number))
                case Abort(number):
                    if number in self._works:
                        self._works[number].cancel()
                case Reply(number, value, failure):
                    self._replied(self._asks.pop(number), value, failure)
                case Read(number):
                    self._start(self._read(number))
                case WriteRow(number, row):
                    self._start(self._write(number, row))
                case Finish(reason):
                    assert self._over is not None
                    if not self._over.done():
                        self._over.set_result(reason)

    def _report(self, event: Callable[[], list[Command]]) -> None:
        """Report an event outside a task, where the loop would drop an error of the journal."""
        try:
            self._carry_out(event())
        except Exception as error:
            self._stop(error)

    def _ask(
        self, loop: asyncio.AbstractEventLoop, tool: int, part: str, request: ChatRequest
    ) -> Future[Any]:
        """Make a call for a tool that runs; any thread may do so. The result is the answer, or
        CallFailed.
        """
        found: Future[Any] = Future()
        # The context of the tool's code must not reach other rows.
        asked = partial(self._asked, found, tool, part, request)
        loop.call_soon_threadsafe(asked, context=self._context)
        return found

    def _asked(self, found: Future[Any], tool: int, part: str, request: ChatRequest) -> None:
        if self._closing:
            found.cancel()
            return
        number = next(self._numbers)
        self._asks[number] = found
        self._report(lambda: self._machine.asked(tool, number, part, request))

    @staticmethod
    def _replied(ask: Future[Any], value: Any, failure: Failure | None) -> None:
        # The tool may have cancelled it.
        if ask.set_running_or_notify_cancel():
            if failure is None:
                ask.set_result(value)
            else:
                ask.set_exception(CallFailed(failure))

    def _refused(self, window: str) -> None:
        self._resize(window, self._pace.refused(window, monotonic()))

    def _resize(self, window: str, slots: int | None) -> None:
        if slots is not None and not self._closing:
            self._carry_out(self._machine.credit(window, slots))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._others.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._stop(error)

    def _worked(self, number: int, task: asyncio.Task[None]) -> None:
        del self._works[number]
        self._unsafe.discard(number)
        if task.cancelled():
            if not self._closing:
                failure = Failure("aborted", "no operator needs the call")
                self._report(lambda: self._machine.failed(number, failure))
        elif (error := task.exception()) is not None:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """End the run with an error of its files, or of the code."""
        assert self._over is not None
        self._error = self._error or error
        if not self._over.done():
            self._over.set_exception(error)

    async def _read(self, count: int) -> None:
        """Give rows to the machine. Rows without calls may end faster than the journal writes, so
        that each of them waits for room.
        """
        last = False

        def some() -> Iterator[tuple[int, Mapping[str, Any]]]:
            """Yield rows up to the first one that ends at once."""
            nonlocal count, last
            opened = self._machine.open_rows
            while count and self._machine.open_rows == opened:
                row = next(self._rows, None)
                if row is None:
                    count, last = 0, True
                    return
                count, opened = count - 1, opened + 1
                yield row

        while count:
            # The writes of the last rows begin.
            await asyncio.sleep(0)
            while len(self._others) > _MOST_WRITES or self._journal.waiting > _MOST_BYTES:
                await asyncio.wait(self._others, return_when=asyncio.FIRST_COMPLETED)
            self._carry_out(self._machine.rows(some(), last=False))
        if last:
            self._carry_out(self._machine.rows((), last=True))

    async def _write(self, number: int, row: Row) -> None:
        end = RowEnd(number, row.failed, output_of(number, row), row.unmet)
        await self._journal.write(end)
        self.rows += 1
        self.failed += row.failed
        self.unmet += row.unmet
        self.row_ended(number, row.failed)

    async def _work(self, work: Work) -> None:
        """Make a request, and report its end to the machine."""
        try:
            value, usage, repeatable = await self._result(work)
        except CallFailed as error:
            if not self._closing:
                failed = self._machine.failed(work.number, error.failure, error.usage)
                self._carry_out(failed)
        else:
            if not self._closing:
                commands = self._machine.succeeded(work.number, value, usage, repeatable=repeatable)
                self._carry_out(commands)

    async def _result(self, work: Work) -> tuple[Any, Usage | None, bool]:
        """Return the value, the tokens (None if the journal or another run has the value), and
        whether equal requests have this value. Raises CallFailed.
        """
        usage: Usage | None
        row = row_of(work)
        known = self._journal.find(row, work.key)
        if known is not None:
            if known.state is State.DONE:
                return known.value, None, True
            failed = known.state is State.FAILED
            raise CallFailed(Failure(*known.value) if failed else _UNKNOWN)
        if not work.safe:
            self._unsafe.add(work.number)
            await self._journal.write(Record(row, work.key, State.INTENT))
        try:
            if isinstance(work.request, LlmRequest):
                answer = await self._caller.call(work, partial(self._refused, work.window))
                value = answer.text if answer.whole is None else answer.whole
                tokens, repeatable = answer.usage.total, True
                usage = answer.usage if answer.made else None
                self._spend(work.row, tokens)
                self._resize(work.window, self._pace.answered(work.window))
            else:
                ask = partial(self._ask, asyncio.get_running_loop(), work.number)
                value, repeatable = await self._tools.run(work.request, work.attempts, ask)
                usage, tokens = Usage(), 0
        except CallFailed as error:
            if not work.safe:
                parts = list(error.failure)
                await self._journal.write(Record(row, work.key, State.FAILED, parts))
            if error.usage.total:
                self._spend(work.row, error.usage.total)
                spent = Record(row, SPENT, State.DONE, tokens=error.usage.total)
                await self._journal.write(spent)
            raise
        if repeatable or not work.shared:
            record = Record(row, work.key, State.DONE, value, tokens)
            await self._journal.write(record)
        return value, usage, repeatable


def output_of(number: int, row: Row) -> dict[str, Any]:
    """Return a row of the output file. error: None, or the operator's place, code, message and
    attempts.
    """
    error = None
    if row.error is not None:
        one = row.error
        error = {
            "op": one.operator, "code": one.code, "message": one.message, "attempts": one.attempts
        }  # fmt: skip
    return {"row": number, **row.outputs, "error": error}
