"""Tool calls that a model writes as a JSON array in plain text (Sutradhara 4.2). Sans-I/O.

An element is a call if it names a tool: `{"name": ..., "arguments": {...}}`, the same with
`parameters`, in a `function` as OpenAI nests it, or `{"tool": ..., ...}` whose other keys are the
arguments, as in the paper. A call is complete when its brace closes, while the array is still open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

from weft_gateway.overlap.allowance import Allowance
from weft_gateway.overlap.json_end import JsonEnd

_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_ARGUMENTS: Final = ("arguments", "parameters")

# The reader's position: outside any array, before an element, in one, after one.
_OUTSIDE, _BEFORE, _IN, _AFTER = range(4)


class TextCalls:
    """Finds calls in one text. names: the available tools, or None to accept any name."""

    __slots__ = ("_allowance", "_end", "_kept", "_loads", "_names", "_parts", "_place")

    def __init__(
        self,
        allowance: Allowance,
        names: Container[str] | None = None,
        loads: Callable[[str], Any] = json.loads,
    ) -> None:
        self._allowance = allowance
        self._names = names
        self._loads = loads
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
            element = self._loads(text)
            return self._read(element)
        except (ValueError, RecursionError):
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
            return (name, arguments) if isinstance(self._loads(arguments), dict) else None
        return (name, json.dumps(arguments)) if isinstance(arguments, dict) else None
