"""Tool calls that a model writes as a JSON array in plain text (Sutradhara 4.2). Sans-I/O.

An element is a call if it names a tool: `{"name": ..., "arguments": {...}}`, the same with
`parameters`, in a `function` as OpenAI nests it, or `{"tool": ..., ...}` whose other keys are the
arguments, as in the paper. A call is complete when its brace closes, while the array is still open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from typing import Any, Final

import orjson

from weft_gateway.overlap.json_end import JsonEnd

# A megabyte of unfinished arguments is no tool call. The limit bounds a stream's memory.
MAX_KEPT_CHARS: Final = 1 << 20
_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_ARGUMENTS: Final = ("arguments", "parameters")

# The reader's position: outside any array, before an element, in one, after one.
_OUTSIDE, _BEFORE, _IN, _AFTER = range(4)


class Allowance:
    """The number of characters that the unfinished calls of one stream may keep together."""

    __slots__ = ("_left",)

    def __init__(self, chars: int = MAX_KEPT_CHARS) -> None:
        self._left = chars

    def take(self, chars: int) -> bool:
        """Take `chars` characters. Returns False, without a change, if fewer are left."""
        if chars > self._left:
            return False
        self._left -= chars
        return True

    def give_back(self, chars: int) -> None:
        """Return `chars` characters that are no longer kept."""
        self._left += chars


class TextCalls:
    """Finds calls in one text. names: the available tools, or None to accept any name."""

    __slots__ = ("_allowance", "_end", "_kept", "_names", "_parts", "_place")

    def __init__(self, allowance: Allowance, names: Container[str] | None = None) -> None:
        self._allowance = allowance
        self._names = names
        self._place = _OUTSIDE
        self._end = JsonEnd()
        self._parts: list[str] | None = []  # The element so far; None: too long to keep.
        self._kept = 0

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Take the next piece. Returns (name, arguments as JSON) of each call that it completes."""
        calls: list[tuple[str, str]] = []
        position, size = 0, len(text)
        while position < size:
            if self._place == _OUTSIDE:
                position = text.find("[", position) + 1
                if not position:
                    break
                self._place = _BEFORE
            elif self._place == _IN:
                position = self._element(text, position, calls)
            else:
                found = _NOT_SPACE.search(text, position)
                if found is None:
                    break
                position = self._between(found[0], found.start())
        return calls

    def _between(self, character: str, position: int) -> int:
        if self._place == _BEFORE and character == "{":
            self._place = _IN
            self._end = JsonEnd()
            self._parts = []
            return position
        if self._place == _AFTER and character == ",":
            self._place = _BEFORE
            return position + 1
        self._place = _OUTSIDE  # Read again from there: it may open another array.
        return position

    def _element(self, text: str, position: int, calls: list[tuple[str, str]]) -> int:
        end = self._end.feed(text, position)
        piece = text[position:end] if end >= 0 else text[position:]
        if self._parts is not None:
            if self._allowance.take(len(piece)):
                self._kept += len(piece)
                self._parts.append(piece)
            else:
                self._forget()
        if end < 0:
            return len(text)
        call = self._call("".join(self._parts)) if self._parts is not None else None
        self._forget()
        if call is None:
            self._place = _OUTSIDE
        else:
            self._place = _AFTER
            calls.append(call)
        return end

    def _forget(self) -> None:
        self._allowance.give_back(self._kept)
        self._kept = 0
        self._parts = None

    def _call(self, text: str) -> tuple[str, str] | None:
        try:
            return self._read(orjson.loads(text))
        except orjson.JSONDecodeError:
            return None

    def _read(self, element: Mapping[str, Any]) -> tuple[str, str] | None:
        inner = element.get("function")
        if isinstance(inner, dict):
            element = inner
        name = element.get("name")
        arguments: Any = next((element[key] for key in _ARGUMENTS if key in element), None)
        if not isinstance(name, str):
            name = element.get("tool")
            if arguments is None:
                arguments = {key: value for key, value in element.items() if key != "tool"}
        if not isinstance(name, str) or (self._names is not None and name not in self._names):
            return None
        if isinstance(arguments, str):  # The form of OpenAI: JSON in a string.
            return (name, arguments) if isinstance(orjson.loads(arguments), dict) else None
        return (name, json.dumps(arguments)) if isinstance(arguments, dict) else None
