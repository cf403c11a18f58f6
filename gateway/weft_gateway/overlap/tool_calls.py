"""Assembles tool calls from the chunks of a stream. Each call is returned as soon as it is
complete.

Sutradhara 4.2: a call can be dispatched when its closing brace arrives, without waiting for the
model's next output. Chunks of four formats are recognised by their content: deltas of OpenAI's chat
completions, content blocks of Anthropic's messages, events of OpenAI's responses, and a JSON array
of calls in the plain text of any of them. Sans-I/O. No input raises an exception, and memory is
bounded.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from weft_gateway.overlap.json_end import JsonEnd
from weft_gateway.overlap.text_calls import Allowance, TextCalls

# Maximum calls and texts of one answer; the widest observed fan-out is 21 (Sutradhara 3.2).
MAX_FOLLOWED: Final = 1024

# Regular ends of an answer. After any other reason the last call may be cut short, and a call
# without arguments may have lost them. Not a set: a reason may be any value, and a list is not
# hashable.
_WHOLE: Final = ("stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call of a tool.

    index: its number in the stream: among a choice's calls (chat), the content block (messages),
    the output item (responses), or the element of the array (text). id: from the engine, "" in
    text. arguments: valid JSON, as written by the model; `{}` if empty. choice: index of the answer
    among several to one request.
    """

    index: int
    id: str
    name: str
    arguments: str
    choice: int = 0


class _Open:
    """A call whose arguments are still arriving."""

    __slots__ = ("end", "id", "name", "parts", "size")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.parts: list[str] = []
        self.size = 0
        self.end = JsonEnd()


_Key = tuple[int, int]  # Choice and index.


class ToolCallParser:
    """One stream's parser. names: the available tools; calls in text must name one (None: any)."""

    def __init__(self, names: Container[str] | None = None) -> None:
        self._names = names
        self._allowance = Allowance()
        self._calls: dict[_Key, _Open | None] = {}  # None: complete or dropped.
        self._open = 0  # Number of calls that are not None.
        self._texts: dict[_Key, TextCalls] = {}
        self._in_text: dict[int, int] = {}  # Calls found in the text of each choice.
        self._found: list[ToolCall] = []

    def feed(self, chunk: Any) -> list[ToolCall]:
        """Take a parsed chunk. Returns the calls that it completes, in order of completion."""
        if not isinstance(chunk, Mapping):
            return []
        found: list[ToolCall] = []
        self._found = found
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, Mapping):
                    self._choice(choice)
        else:
            event = chunk.get("type")
            if isinstance(event, str):
                if event.startswith("response."):
                    self._response(event, chunk)
                else:
                    self._message(event, chunk)
        return found

    # OpenAI's chat completions and plain completions.

    def _choice(self, choice: Mapping[str, Any]) -> None:
        number = _number(choice.get("index"))
        delta = choice.get("delta")
        self._text((number, 0), choice.get("text"), number)  # Plain completions.
        if isinstance(delta, Mapping):
            self._text((number, 0), delta.get("content"), number)
            pieces = delta.get("tool_calls")
            if isinstance(pieces, list):
                for piece in pieces:
                    if isinstance(piece, Mapping):
                        self._piece(number, piece)
        if choice.get("finish_reason") in _WHOLE:
            self._seal(number)

    def _piece(self, choice: int, piece: Mapping[str, Any]) -> None:
        function = piece.get("function")
        if not isinstance(function, Mapping):
            function = {}
        self._add(
            (choice, _number(piece.get("index"))),
            piece.get("id"),
            function.get("name"),
            function.get("arguments"),
        )

    # Anthropic's messages.

    def _message(self, event: str, chunk: Mapping[str, Any]) -> None:
        key = (0, _number(chunk.get("index")))
        if event == "content_block_delta":
            delta = chunk.get("delta")
            if isinstance(delta, Mapping):
                if delta.get("type") == "input_json_delta":
                    self._add(key, None, None, delta.get("partial_json"), begin=False)
                elif delta.get("type") == "text_delta":
                    self._text(key, delta.get("text"))
        elif event == "content_block_start":
            block = chunk.get("content_block")
            if isinstance(block, Mapping) and block.get("type") == "tool_use":
                given = block.get("input")
                whole = json.dumps(given) if given and isinstance(given, Mapping) else None
                self._add(key, block.get("id"), block.get("name"), whole)
        elif event == "message_delta":
            delta = chunk.get("delta")
            if isinstance(delta, Mapping) and delta.get("stop_reason") in _WHOLE:
                self._seal(0)

    # OpenAI's responses.

    def _response(self, event: str, chunk: Mapping[str, Any]) -> None:
        key = (0, _number(chunk.get("output_index")))
        if event == "response.function_call_arguments.delta":
            self._add(key, None, None, chunk.get("delta"), begin=False)
        elif event == "response.function_call_arguments.done":
            call = self._calls.get(key)
            if call is not None and not call.parts:  # An engine that sends no deltas.
                self._add(key, None, chunk.get("name"), chunk.get("arguments"))
        elif event == "response.output_item.added":
            item = chunk.get("item")
            if isinstance(item, Mapping) and item.get("type") == "function_call":
                self._add(key, item.get("call_id"), item.get("name"), item.get("arguments"))
        elif event == "response.output_text.delta":
            self._text((_number(chunk.get("content_index")), key[1]), chunk.get("delta"))
        elif event == "response.completed":
            self._seal(0)

    # All formats.

    def _add(self, key: _Key, id_: Any, name: Any, arguments: Any, *, begin: bool = True) -> None:
        """Add to the call `key`. begin: whether this may start the call."""
        if key in self._calls:
            call = self._calls[key]
        elif begin and len(self._calls) < MAX_FOLLOWED:
            call = self._calls[key] = _Open()
            self._open += 1
        else:
            return
        if call is None:
            return
        if id_ and isinstance(id_, str) and not call.id:
            call.id = id_
        if name and isinstance(name, str) and not call.parts and name != call.name:
            # Some servers send a name in pieces, others repeat it.
            if not self._keep(key, call, len(name)):
                return
            call.name += name
        if not (arguments and isinstance(arguments, str)):
            return
        if not call.parts:
            self._seal(key[0], empty_before=key)
        end = call.end.feed(arguments)
        piece = arguments if end < 0 else arguments[:end]
        if self._keep(key, call, len(piece)):
            call.parts.append(piece)
            if end >= 0:
                self._complete(key, call)

    def _keep(self, key: _Key, call: _Open, size: int) -> bool:
        if self._allowance.take(size):
            call.size += size
            return True
        self._drop(key, call)
        return False

    def _drop(self, key: _Key, call: _Open) -> None:
        self._allowance.give_back(call.size)
        self._calls[key] = None
        self._open -= 1

    def _complete(self, key: _Key, call: _Open) -> None:
        """The arguments are complete: add the call if they are JSON and belong to a tool."""
        self._drop(key, call)
        arguments = "".join(call.parts).strip() or "{}"
        try:
            orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return
        if call.name:
            self._found.append(ToolCall(key[1], call.id, call.name, arguments, key[0]))

    def _seal(self, choice: int, empty_before: _Key | None = None) -> None:
        """Complete the calls of a choice whose end is not visible (numbers, no arguments), because
        no more data comes. empty_before: only calls without arguments that began before this call,
        whose arguments now begin; an engine may send the heads of several calls first.
        """
        if not self._open:
            return
        for key, call in list(self._calls.items()):
            if key == empty_before:
                return
            if call is not None and key[0] == choice and not (empty_before and call.parts):
                self._complete(key, call)

    def _text(self, key: tuple[int, int], text: Any, choice: int = 0) -> None:
        """Add to the text `key`, which belongs to a choice."""
        if not (text and isinstance(text, str)):
            return
        reader = self._texts.get(key)
        if reader is None:
            if len(self._texts) >= MAX_FOLLOWED:
                return
            reader = self._texts[key] = TextCalls(self._allowance, self._names)
        for name, arguments in reader.feed(text):
            index = self._in_text.get(choice, 0)
            self._in_text[choice] = index + 1
            self._found.append(ToolCall(index, "", name, arguments, choice))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
