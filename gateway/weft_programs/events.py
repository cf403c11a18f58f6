"""A program's tool calls as server-sent events (Sutradhara's `register_streaming_callback`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Self

import httpx

from weft_programs.stream import ToolCall

# Its fields `choice_index` and `tool_call` are Dynamo's.
EVENT: Final = "tool_call_dispatch"
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
            async for call in tool_calls(response.aiter_lines()):
                self._callback(call)
        except Exception as error:
            return error
        return None


async def tool_calls(lines: AsyncIterator[str]) -> AsyncIterator[ToolCall]:
    """The tool calls of a stream of `tool_call_dispatch` events, each of one `data:` line. Other
    events are ignored."""
    name = ""
    async for line in lines:
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif line.startswith("data:") and name == EVENT:
            try:
                data = json.loads(line.removeprefix("data:"))
                call = data["tool_call"]
                told = (call["function"]["name"], call["function"]["arguments"])
                found = ToolCall(call["index"], call["id"], *told, data["choice_index"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            yield found
        elif not line:
            name = ""
