"""Finds complete tool calls in a client's stream while the answer still runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weft_programs.message import Message

# Regular ends of an answer. After any other end, a call without arguments may have lost them.
_WHOLE: Final = ("stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call of a tool.

    index: its number among a choice's calls (chat), the content block (messages), or the output
    item (responses). id: from the engine. arguments: valid JSON, as written by the model; `{}` if
    empty. choice: index of the answer among several to one request.
    """

    index: int
    id: str
    name: str
    arguments: str
    choice: int = 0


@dataclass(slots=True)
class _Open:
    """A call whose arguments are still arriving."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class _Calls:
    """The calls of one stream, by choice and index. None: the call is complete or dropped."""

    open: dict[tuple[int, int], _Open | None] = field(default_factory=dict)

    def feed(self, chunk: Mapping[str, Any]) -> list[ToolCall]:
        """Take a chunk of chat completions, or an event of messages or responses. Returns the
        calls that it completes."""
        found: list[ToolCall] = []
        for choice in chunk.get("choices") or ():
            number = choice.get("index") or 0
            for piece in (choice.get("delta") or {}).get("tool_calls") or ():
                function = piece.get("function") or {}
                key = (number, piece.get("index") or 0)
                if function.get("arguments"):
                    # Calls without arguments end where the arguments of a later call begin.
                    found += self._end(number, before=key[1])
                found += self._add(key, piece.get("id"), **function)
            if choice.get("finish_reason") in _WHOLE:
                found += self._end(number)
        event = chunk.get("type")
        if event == "content_block_start" and chunk["content_block"]["type"] == "tool_use":
            block = chunk["content_block"]
            self._add((0, chunk["index"]), block["id"], block["name"])
        elif event == "content_block_delta" and chunk["delta"]["type"] == "input_json_delta":
            found += self._add((0, chunk["index"]), arguments=chunk["delta"]["partial_json"])
        elif event == "message_delta" and chunk["delta"].get("stop_reason") in _WHOLE:
            found += self._end(0)
        elif event == "response.output_item.done" and chunk["item"]["type"] == "function_call":
            item, key = chunk["item"], (0, chunk["output_index"])
            found += self._add(key, item["call_id"], item["name"], item["arguments"] or "{}")
        return found

    def _add(
        self,
        key: tuple[int, int],
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
    ) -> list[ToolCall]:
        call = self.open.setdefault(key, _Open())
        if call is None:
            return []
        call.id = call.id or id or ""
        if name and name != call.name and not call.arguments:
            call.name += name  # Some servers send a name in pieces, others repeat it.
        call.arguments += arguments or ""
        # The arguments are an object, so they are complete where they are JSON.
        if call.arguments.rstrip().endswith("}"):
            return self._complete(key, call)
        return []

    def _end(self, choice: int, before: int | None = None) -> list[ToolCall]:
        """Complete the calls without arguments of a choice: no more data comes for them."""
        found = []
        for key, call in list(self.open.items()):
            if call is not None and key[0] == choice and (before is None or key[1] < before):
                if not call.arguments.strip():
                    call.arguments = "{}"
                found += self._complete(key, call)
        return found

    def _complete(self, key: tuple[int, int], call: _Open) -> list[ToolCall]:
        try:
            json.loads(call.arguments)
        except (ValueError, RecursionError):
            return []
        self.open[key] = None
        return [ToolCall(key[1], call.id, call.name, call.arguments, key[0])] if call.name else []


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
    ) -> None:
        """callback: called with each tool call before it is yielded. on_chunk: called with each
        chunk of the client."""
        self.message = Message()
        self._stream = stream
        self._callback = callback
        self._on_chunk = on_chunk
        self._calls = _Calls()

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
        calls = self._calls.feed(data)
        for call in calls:
            if call.choice == 0:
                self.message.complete(call.index, call.name, call.arguments)
            if self._callback is not None:
                self._callback(call)
        return calls
