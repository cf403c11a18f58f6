"""The LLM calls of a process of runs, which the gateway makes.

Equal greedy calls of different runs are made once. The run that waits for a call when it ends has
its tokens. A call continues while a run waits for it, also if the run that began it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

from weft_run.io.caller import Answer, encoded, read_answer
from weft_run.io.errors import CallFailed
from weft_run.language.answers import Answers
from weft_run.language.graph import Workflow
from weft_run.language.requests import LlmRequest
from weft_run.plan.commands import NO_USAGE, Failure, RowMajor, Work
from weft_run.plan.groups import group_number, leading_columns

from weft_gateway.runs.flow_wire import Ask, CallEnded, Drop, FromWorker

# Bodies of calls that the gateway has and has not answered yet. A longer one is alone.
_MOST_BYTES: Final = 64 << 20
# Answers that later runs of the process may need.
_CACHE_BYTES: Final = 64 << 20
Send = Callable[[FromWorker], None]


@dataclass(slots=True, eq=False)
class _Flight:
    """A call that runs may share. waiters: runs that wait for it. paid: one of them has its
    tokens.
    """

    task: asyncio.Task[Answer]
    waiters: int = 0
    paid: bool = False


class PipeCaller:
    """Passes the calls of all runs of a process to the gateway. most_bytes: of a body."""

    def __init__(self, send: Send, most_bytes: int) -> None:
        self._send = send
        self._most_bytes = most_bytes
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[CallEnded]] = {}
        self._flights: dict[str, _Flight] = {}
        self._answers = Answers(_CACHE_BYTES)
        self._bytes = 0
        self._room = asyncio.Condition()

    async def call(self, work: Work, row: int, group: int) -> Answer:
        """Make a call, or share that of another run. The gateway repeats it. row, group: see `Ask`.
        Raises CallFailed.
        """
        if not work.shared:
            return await self._make(work, row, group)
        if work.key in self._answers:
            return Answer(self._answers.get(work.key), NO_USAGE, made=False)
        flight = self._flights.get(work.key)
        if flight is None:
            task = asyncio.create_task(self._make(work, row, group))
            flight = self._flights[work.key] = _Flight(task)
            task.add_done_callback(partial(self._ended, work.key, flight))
        return await self._shared(work.key, flight)

    async def _shared(self, key: str, flight: _Flight) -> Answer:
        flight.waiters += 1
        try:
            found = await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            flight.waiters -= 1
            if not flight.waiters:
                self._forget(key, flight)
                flight.task.cancel()
            raise
        if flight.paid:
            return Answer(found.text, NO_USAGE, made=False)
        flight.paid = True
        return found

    def _ended(self, key: str, flight: _Flight, task: asyncio.Task[Answer]) -> None:
        self._forget(key, flight)
        if not task.cancelled() and task.exception() is None:
            self._answers.put(key, task.result().text)

    def _forget(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _make(self, work: Work, row: int, group: int) -> Answer:
        request = work.request
        assert isinstance(request, LlmRequest)
        body = encoded(request)
        if len(body) > self._most_bytes:
            what = f"the request has more than {self._most_bytes} bytes"
            raise CallFailed(Failure("too_large", what, attempts=0))
        size = len(body)
        async with self._room:
            await self._room.wait_for(lambda: not self._bytes or self._bytes + size <= _MOST_BYTES)
            self._bytes += size
        try:
            ask = Ask(next(self._numbers), row, request.model, work.attempts, body, group)
            return await self._answer(ask)
        finally:
            self._bytes -= size
            async with self._room:
                self._room.notify_all()

    async def _answer(self, ask: Ask) -> Answer:
        found = self._waiting[ask.number] = asyncio.get_running_loop().create_future()
        self._send(ask)
        try:
            answer = await found
        except asyncio.CancelledError:
            self._send(Drop(ask.number))
            raise
        finally:
            del self._waiting[ask.number]
        if answer.code:
            raise CallFailed(Failure(answer.code, answer.message, answer.attempts))
        return read_answer(answer.body)

    def answered(self, answer: CallEnded) -> None:
        """The gateway has an answer. That of an aborted call is ignored."""
        found = self._waiting.get(answer.number)
        if found is not None and not found.done():
            found.set_result(answer)


class RunCaller(RowMajor):
    """The calls of one run, and its plan: rows in their order. The gateway chooses the replicas.
    first: the number of the run's first row in the process.
    """

    def __init__(self, pipe: PipeCaller, workflow: Workflow, first: int) -> None:
        super().__init__()
        self._pipe = pipe
        self._path = leading_columns(workflow)
        self._first = first
        self._groups: dict[int, int] = {}

    def begin(self, row: int, columns: Mapping[str, Any]) -> None:
        """A row begins: find the rows that begin alike."""
        self._groups[row] = group_number(self._path, columns)

    def ended(self, row: int) -> None:
        """A row has ended."""
        del self._groups[row]

    async def call(self, work: Work, refused: Callable[[], None]) -> Answer:
        """Make a call. Raises CallFailed."""
        return await self._pipe.call(work, self._first + work.row, self._groups.get(work.row, 0))

    async def aclose(self) -> None:
        """The gateway ends the program."""
