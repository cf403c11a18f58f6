"""A program's tool calls as server-sent events (Sutradhara's `register_streaming_callback`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Self

import httpx
from weft_gateway.overlap.dispatch import EVENT, from_json
from weft_gateway.overlap.events import EventReader
from weft_gateway.overlap.tool_calls import ToolCall

# The server sends nothing while no tool is called.
_TIMEOUT: Final = httpx.Timeout(10.0, read=None)


class CallbackStream:
    """Calls `callback` with each tool call within `async with`.

    Entering returns when the server sends events, so that no later tool call is missed. It raises
    httpx.HTTPStatusError if the server has no such stream. ended: a task that finishes when the
    stream ends by itself, with the error that ended it or None.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], callback: Callable[[ToolCall], object]
    ) -> None:
        self._url = url
        self._headers = dict(headers)
        self._callback = callback
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx.AsyncClient(timeout=_TIMEOUT))
            stream = http.stream("GET", self._url, headers=self._headers)
            response = await stack.enter_async_context(stream)
            if response.is_error:
                await response.aread()
            response.raise_for_status()
            self._stack = stack.pop_all()
        self.ended = asyncio.create_task(self._read(response))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ended.cancel()
        await asyncio.wait([self.ended])
        await self._stack.aclose()

    async def _read(self, response: httpx.Response) -> Exception | None:
        try:
            async for call in tool_calls(response.aiter_bytes()):
                self._callback(call)
        except Exception as error:
            return error
        return None


async def tool_calls(pieces: AsyncIterator[bytes]) -> AsyncIterator[ToolCall]:
    """The tool calls of a stream of `tool_call_dispatch` events; other events are ignored."""
    reader = EventReader()
    async for piece in pieces:
        for event in reader.feed(piece):
            if event.name == EVENT.encode():
                with contextlib.suppress(ValueError, RecursionError):
                    call = from_json(json.loads(event.data))
                    if call is not None:
                        yield call
