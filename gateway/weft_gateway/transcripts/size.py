"""What it costs to read a message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# A character of a text takes about 5 ns. Arguments of tool calls, which are JSON in a string, cost
# more: a coding session of 2 MB has up to half of its text there.
_ARGUMENTS_WEIGHT: Final = 8
# Characters that take as long as a message or a part, and as a brace, bracket or comma.
_ITEM: Final = 1536
_SIGN: Final = 20
_SHORT: Final = 256


def size_of(item: Any, most_items: int) -> tuple[int, int]:
    """Return the number of parts and characters of one message or Responses API item. Parts beyond
    `most_items` are not inspected.
    """
    if type(item) is str:
        return 0, len(item)
    if type(item) is list:  # A prompt of token ids.
        return len(item), 0
    if type(item) is not dict:
        return 0, 0
    items = text = 0
    for name in ("content", "output", "arguments", "text"):
        value = item.get(name)
        if type(value) is str:
            text += len(value) * (_ARGUMENTS_WEIGHT if name == "arguments" else 1)
        elif type(value) is list:
            items += len(value)
            if items > most_items:
                return items, text
            for part in value:
                more, longer = size_of(part, most_items)
                items += more
                text += longer
    calls = item.get("tool_calls")
    if type(calls) is list:
        items += len(calls)
        for call in calls if items <= most_items else ():
            function = call.get("function") if type(call) is dict else None
            arguments = function.get("arguments") if type(function) is dict else None
            if type(arguments) is str:
                text += len(arguments) * _ARGUMENTS_WEIGHT
    return items, text


def signs(raw: bytes) -> int:
    """Return the number of braces, brackets and commas."""
    return raw.count(b"{") + raw.count(b"[") + raw.count(b",")


def cost_of(message: Mapping[str, Any], raw: bytes) -> int:
    """Return the characters that take at least as long to read as a message. raw: its text."""
    items = 0
    content = message.get("content")
    if len(message) == 2 and type(content) is str:  # The usual case.
        text = len(content)
    else:
        items, text = size_of(message, 1 << 30)
    # A short message costs as much by itself.
    return text + _ITEM * (1 + items) + (_SIGN * signs(raw) if len(raw) > _SHORT else 0)
