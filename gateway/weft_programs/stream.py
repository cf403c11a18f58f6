"""Finds complete tool calls in a client's stream while the answer still runs."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Container, Iterable, Iterator
from typing import Any

from weft_gateway.overlap.tool_calls import ToolCall, ToolCallParser

from weft_programs.message import Message


class ToolCalls:
    """Iterates a stream and yields its tool calls, each as soon as it is complete.

    The stream is what an OpenAI client (chat completions, responses) or an Anthropic client
    (messages) returns for `stream=True`, or any iterable of chunks as dicts. Use `for` with a
    blocking stream and `async for` with an async one. message: the answer so far (chat
    completions).
    """

    def __init__(
        self,
        stream: Iterable[Any] | AsyncIterable[Any],
        callback: Callable[[ToolCall], object] | None = None,
        *,
        on_chunk: Callable[[Any], object] | None = None,
        in_text: bool = False,
        names: Container[str] | None = None,
    ) -> None:
        """callback: called with each tool call before it is yielded. on_chunk: called with each
        chunk of the client. in_text: also find a JSON array of tool calls in plain text. names:
        tools to find in text; default: any."""
        self.message = Message()
        self._stream = stream
        self._callback = callback
        self._on_chunk = on_chunk
        self._parser = ToolCallParser(names=names, text=in_text)

    def __iter__(self) -> Iterator[ToolCall]:
        if not isinstance(self._stream, Iterable):
            raise TypeError("this stream is asynchronous: use `async for`")
        for chunk in self._stream:
            yield from self._take(chunk)

    async def __aiter__(self) -> AsyncIterator[ToolCall]:
        if not isinstance(self._stream, AsyncIterable):
            raise TypeError("this stream is not asynchronous: use `for`")
        async for chunk in self._stream:
            for call in self._take(chunk):
                yield call

    def _take(self, chunk: Any) -> list[ToolCall]:
        if self._on_chunk is not None:
            self._on_chunk(chunk)
        data = chunk if isinstance(chunk, dict) else chunk.model_dump(exclude_unset=True)
        self.message.add(data)
        calls = self._parser.feed(data)
        for call in calls:
            self.message.complete(call)
            if self._callback is not None:
                self._callback(call)
        return calls
