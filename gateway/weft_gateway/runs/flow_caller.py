"""The LLM calls of a worker process, which the gateway makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from weft_gateway.runs.caller import Answer, encoded, read_answer
from weft_gateway.runs.errors import CallFailed
from weft_gateway.runs.flow_wire import Answer as Answered
from weft_gateway.runs.flow_wire import Ask, Drop, FromWorker
from weft_gateway.workflows.commands import Failure, Work
from weft_gateway.workflows.requests import LlmRequest

# Bodies of calls that the gateway has and has not answered yet. A longer one is alone.
_MOST_BYTES: Final = 64 << 20
Send = Callable[[FromWorker], None]


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
        body = encoded(request)
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
