"""A prompt as digests: its head (tools and system prompt) and its messages. Pure.

Two outlines show where a prompt leaves an earlier one of its program, in messages and bytes of the
client's JSON. No text is kept. Marks of `cache_control` are no part of a prompt.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from weft_gateway.transcripts.reading import MARK, Reading, read

# Members that engines render before the messages, and those that change how they render.
_HEAD: Final = ("system", "instructions", "tools", "functions")
_OPTIONS: Final = (
    "chat_template", "chat_template_kwargs", "documents", "reasoning", "reasoning_effort",
    "thinking",
)  # fmt: skip
_MARK: Final = re.compile(rb',?\s*"cache_control"\s*:\s*(?:\{[^{}]*\}|null)')
# Claude Code's line with a digest that changes with each call. Engines of vLLM drop it at the
# beginning of a text (`weft_gateway.policies.unseen`).
_BILLED: Final = "x-anthropic-billing-header"
_BILLING: Final = re.compile(_BILLED.encode() + rb'(?:[^"\\]|\\(?!n))*(?:\\n)?')
# What dates, times, counters and ids are made of.
_LOOSE: Final = re.compile(
    r"[0-9a-f]{8}[0-9a-f-]*|\d+|\b(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\b"
    r"|\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b|\b[ap]m\b",
    re.IGNORECASE,
)
# Lines of a system prompt that are compared one by one, and bytes of a text prompt's pieces.
_MOST_LINES: Final = 1024
_PIECE: Final = 1024
# Bytes of an outline beside its messages, and of each message.
_OVERHEAD: Final = 400
_PER_MESSAGE: Final = 20
# A compaction keeps few messages of many, and has a summary of so many bytes.
_KEPT: Final = 3
_LONG: Final = 8
_SUMMARY: Final = 1000
_each: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Change(NamedTuple):
    """The first difference of a prompt from an earlier one. kind: what it is. path: of the member
    or item. message: the item's index, None for the head. byte: where it begins in the body.
    """

    kind: str
    path: str = ""
    message: int | None = None
    byte: int = 0


@dataclass(slots=True, eq=False)
class Outline:
    """A prompt. model, salt: of the cache entries. head: digest of what comes before the messages,
    without its billing lines; billing: of these. head_bytes: its size. digests: of each message.
    name: of the member with the messages. first: index of the first message behind the head, None
    if the member is a text, whose pieces stand for messages. stops: where the head and each message
    end in the body. ends: the same in tokens, once an engine has counted them. replica: of that
    engine. at: Unix time. ended: its program ended later, because it was idle for too long. call:
    whose prompt it is.
    """

    model: str
    salt: int
    head: int
    billing: int
    head_bytes: int
    name: str
    first: int | None
    digests: array[int]
    stops: array[int]
    ends: array[float] = field(default_factory=lambda: array("f"))
    replica: str = ""
    at: float = 0.0
    ended: bool = False
    call: str = ""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return _OVERHEAD + _PER_MESSAGE * len(self.digests)

    def joints(self, most: int) -> list[int]:
        """Return a digest of each of the last messages with the one before, the last one first."""
        own = [0, *self.digests[-most - 1 :]][-most - 1 :]
        return [hash(pair) for pair in pairwise(own)][::-1]

    def common(self, digests: array[int]) -> int:
        """Return the number of messages that a prompt with these begins with."""
        most = min(len(digests), len(self.digests))
        if digests[:most] == self.digests[:most]:
            return most
        # The beginnings are equal up to some length, and unequal from there on.
        same = range(1, most + 1)
        return bisect_left(same, True, key=lambda n: digests[:n] != self.digests[:n])

    def measure(self, tokens: float, base: Outline | None, common: int) -> None:
        """Set the ends in tokens, when the engine has counted the prompt. base: an outline with the
        same head that has the first `common` messages too, whose ends are better than estimates by
        bytes. None: there is none.
        """
        stops = self.stops
        if base is None:
            whole = self.head_bytes + stops[-1] - stops[0]
            known = array("f", [tokens * self.head_bytes / (whole or 1)])
        else:
            known = array("f", [min(end, tokens) for end in base.ends[: common + 1]])
        at, begin = known[-1], stops[len(known) - 1]
        rate = (tokens - at) / (stops[-1] - begin or 1)
        known.extend([at + rate * (stop - begin) for stop in stops[len(known) :]])
        known[-1] = tokens
        self.ends = known


def outline(
    raw: bytes, body: dict[str, Any], reading: Reading | None, model: str, salt: int
) -> Outline | None:
    """Return the outline of a call's prompt; None if it is not in the body. reading: of a long
    body.
    """
    members = _each(raw if reading is None else reading.fresh)
    name = "input" if "input" in members else "prompt"
    if name in members and "messages" not in members and not _has_items(body[name]):
        piece = bytes(members[name])
        begin = max(0, raw.find(piece))
        # Without the end of the text, which another text may continue.
        end = begin + max(0, len(piece) - 1)
        stops = array("q", [*range(begin, end, _PIECE), end])
        digests = array("q", [hash(raw[at:stop]) for at, stop in pairwise(stops)])
        return Outline(model, salt, *_head(members, b""), name, None, digests, stops)
    reading = read(raw, body, members, ()) if reading is None else reading
    if reading is None:
        return None
    digests, stops = array("q"), array("Q", [reading.head])
    if (known := reading.known) is not None:
        of, count = known.of, known.count
        digests.extend(of.digests[:count])
        stops.extend(of.ends[:count])
        # Digests of whole messages: those of `_digest`, unless a message is marked.
        for index in of.marked:
            if index < count:
                digests[index] = _digest(raw[stops[index] : stops[index + 1]])
    begin, digest = stops[-1], _digest if MARK in reading.fresh else hash
    for stop in reading.ends:
        digests.append(digest(raw[begin:stop]))
        begin = stop
    stops.extend(reading.ends)
    leading = raw[reading.begin + 1 : reading.head] if reading.first else b""
    head = _head(members, leading)
    return Outline(model, salt, *head, reading.name, reading.first, digests, stops)


def _has_items(content: Any) -> bool:
    return type(content) is list and len(content) > 0 and type(content[0]) is not int


def _digest(piece: bytes) -> int:
    return hash(_MARK.sub(b"", piece) if MARK in piece else piece)


def _head(members: Mapping[str, msgspec.Raw], leading: bytes) -> tuple[int, int, int]:
    """Return the digests of a head without its billing lines, and of these, and the head's size."""
    pieces = [bytes(members.get(name, b"")) for name in (*_HEAD, *_OPTIONS)]
    head, lines = b"\0".join([*pieces, leading]), []
    # Of the name, this part is found seven times as fast as the whole.
    if b"-billing-" in head:
        lines, head = _BILLING.findall(head), _BILLING.sub(b"", head)
    return _digest(head), hash(tuple(lines)), len(head)


class Head(NamedTuple):
    """The parts of a head as digests: options, lines of the system prompt, and tools. loose: of the
    lines without dates, counters and ids.
    """

    parts: array[int]
    loose: array[int]


def head_of(body: Mapping[str, Any]) -> Head:
    """Return the parts of a body's head."""
    lines, parts = _parts(body)
    return Head(
        array("q", [hash(text) for _, text in parts]),
        array("q", [hash(_LOOSE.sub("", text)) for _, text in parts[1 : lines + 1]]),
    )


def head_change(before: Head, now: Head, raw: bytes, body: Mapping[str, Any]) -> Change:
    """Return the first difference between two heads with different digests, in the order of chat
    templates. raw, body: of the call with the head `now`.
    """
    pairs = enumerate(zip(before.parts, now.parts, strict=False))
    at = next((n for n, (a, b) in pairs if a != b), min(len(before.parts), len(now.parts)))
    if not at:
        return Change("options")
    lines, parts = _parts(body)
    in_lines = at <= max(len(before.loose), lines)
    # If the last parts are gone, the place is that of the last one left.
    path, text = parts[max(0, min(at, (lines if in_lines else len(parts) - 1)))]
    skipped = ""
    if not in_lines:
        same = sorted(before.parts) == sorted(now.parts)
        kind = "tools reordered" if same else "tools"
    elif before.loose != now.loose:
        kind = "system prompt"
    else:
        kind, found = "date or counter", _LOOSE.search(text)
        skipped = text[: found.start()] if found is not None else ""
    name, _, index = path.partition("[")
    byte = max(0, raw.find(b'"%b"' % name.encode()))
    # A line is written without its quotation marks.
    written = _json(text)[1:-1] if in_lines else text.encode()
    if written and (place := raw.find(written, byte)) >= 0:
        byte = place + len(_json(skipped)[1:-1])
    message = int(index[:-1]) if in_lines and index else None
    return Change(kind, path, message, byte)


def edit(before: Outline, now: Outline, common: int) -> Change | None:
    """Return the edit behind the common messages; None if the new ones are another conversation
    with the same beginning (another question, a sub-agent, a repeated turn).
    """
    kind = _edit(before, now, common)
    if not kind:
        return None
    byte = now.stops[common]
    if now.first is None:
        return Change(kind, now.name, None, byte)
    index = now.first + common
    return Change(kind, f"{now.name}[{index}]", index, byte)


def _edit(before: Outline, now: Outline, common: int) -> str:
    old, new = before.digests[common:], now.digests[common:]
    if not old or not new:
        return ""
    if now.first is None:
        # Its last piece goes on in a longer text, and all pieces behind a change are others.
        return "edited text" if 1 < len(old) <= len(new) else ""
    if not {*old[1:]}.isdisjoint(new) or not {*new[1:]}.isdisjoint(old):
        # Later messages are those of the earlier prompt.
        return "compaction" if len(new) < len(old) else "edited history"
    if len(new) > len(old):
        # The conversation goes on, without what was sent only once.
        return "edited history"
    summary = common <= _KEPT and len(new) <= _KEPT and len(old) >= _LONG
    return "compaction" if summary and now.stops[-1] - now.stops[common] >= _SUMMARY else ""


def _parts(body: Mapping[str, Any]) -> tuple[int, list[tuple[str, str]]]:
    """Return the parts of a head, each with its path, and how many are lines."""
    texts = [(name, body.get(name)) for name in ("system", "instructions")]
    for name in ("messages", "input"):
        messages = body.get(name)
        for index, message in enumerate(messages) if isinstance(messages, list) else ():
            if type(message) is not dict or message.get("role") not in ("system", "developer"):
                break
            texts.append((f"{name}[{index}]", message.get("content")))
    found = [("", _text([body.get(name) for name in _OPTIONS]))]
    for path, content in texts:
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                lines = text.split("\n", _MOST_LINES)
                found += [(path, line) for line in lines if _BILLED not in line]
    del found[_MOST_LINES + 1 :]
    count = len(found) - 1
    name = "tools" if body.get("tools") else "functions"
    tools = body.get(name)
    for index, tool in enumerate(tools) if isinstance(tools, list) else ():
        found.append((f"{name}[{index}]", _text(tool)))
    return count, found


def _text(value: Any) -> str:
    return _MARK.sub(b"", _json(value)).decode()


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return b""  # Lone surrogates, or nested too deeply: the engine will refuse it.
