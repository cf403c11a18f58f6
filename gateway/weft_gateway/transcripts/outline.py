"""A prompt as digests: its head (tools and system prompt) and its messages. Pure.

Two outlines show where a prompt leaves an earlier one of its program, in messages and bytes of the
client's JSON. No text is kept. Marks of `cache_control` are no part of a prompt.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from weft_gateway.transcripts.reading import Reading, read

# Members that engines render before the messages, and those that change how they render.
_HEAD: Final = ("system", "instructions", "tools", "functions")
_OPTIONS: Final = (
    "chat_template", "chat_template_kwargs", "documents", "reasoning", "reasoning_effort",
    "thinking",
)  # fmt: skip
_MARK: Final = re.compile(rb',?\s*"cache_control"\s*:\s*(?:\{[^{}]*\}|null)')
# Claude Code's line with a digest that changes with each call. Engines of vLLM drop a text that
# begins with it.
_BILLING: Final = re.compile(rb'(")?x-anthropic-billing-header(?:[^"\\]|\\(?!n))*(?:\\n)?')
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
_PER_MESSAGE: Final = 12
_each: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Change(NamedTuple):
    """The first difference of a prompt from an earlier one. kind: what it is. path: of the member
    or item. message: the item's index, None for the head. byte: where it begins in the body.
    """

    kind: str
    path: str
    message: int | None
    byte: int


@dataclass(slots=True, eq=False)
class Outline:
    """A prompt that an engine has computed.

    model, salt: of the cache entries. head: digest of what comes before the messages, without its
    billing lines; billing: of these, 0 without one; dropped: the engine leaves them out. digests:
    of each message. ends: estimated end of each
    in tokens; start: of the head. tokens: of the whole prompt, as the engine counted.
    """

    model: str
    salt: int
    head: int
    billing: int
    dropped: bool
    digests: array[int]
    start: float = 0.0
    ends: array[float] = field(default_factory=lambda: array("f"))
    tokens: float = 0.0

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return _OVERHEAD + _PER_MESSAGE * len(self.digests)

    def end(self, count: int) -> float:
        """Return where the first `count` messages end, in tokens."""
        if count == len(self.digests):
            return self.tokens
        return self.ends[count - 1] if count else self.start

    def joints(self, most: int) -> list[int]:
        """Return a digest of each of the last messages with the one before, the last one first."""
        own = self.digests[-most - 1 :]
        if len(own) <= most:
            own.insert(0, 0)
        return [hash((own[at - 1], own[at])) for at in range(len(own) - 1, 0, -1)]

    def common(self, digests: array[int]) -> int:
        """Return the number of messages that a prompt with these begins with."""
        most = min(len(digests), len(self.digests))
        if digests[:most] == self.digests[:most]:
            return most
        # The beginnings are equal up to some length, and unequal from there on.
        same = range(1, most + 1)
        return bisect_left(same, True, key=lambda n: digests[:n] != self.digests[:n])


@dataclass(slots=True, eq=False)
class Sketch:
    """The prompt of a call that is sent: its outline, and where its parts are in the body.

    name: of the member with the messages. first: index of the first message behind the head, None
    if the member is a text.
    begin: where the messages begin. stops: where each ends. head_bytes: of the head.
    """

    outline: Outline
    name: str
    first: int | None
    begin: int
    stops: Sequence[int]
    head_bytes: int

    def change(self, kind: str, message: int) -> Change:
        """Return a change that begins with a message, counted behind the head."""
        byte = self.stops[message - 1] if message else self.begin
        if self.first is None:
            return Change(kind, self.name, None, byte)
        index = self.first + message
        return Change(kind, f"{self.name}[{index}]", index, byte)

    def measure(self, tokens: float, base: Outline | None, common: int) -> None:
        """Set the positions in tokens, when the engine has counted the prompt. base: an outline
        with the same head that has the first `common` messages too, whose positions are better than
        estimates by bytes. None: there is none.
        """
        own, stops = self.outline, self.stops
        own.tokens = tokens
        known = array("f")
        at, begin = 0.0, self.begin - self.head_bytes
        if base is not None:
            known = base.ends[:common]
            if base.tokens > tokens:
                known = array("f", [min(end, tokens) for end in known])
            own.start = min(base.start, tokens)
            if common and common == len(base.digests):
                known[-1] = min(base.tokens, tokens)
            at = known[-1] if common else own.start
            begin = stops[common - 1] if common else self.begin
        left = (stops[-1] if stops else self.begin) - begin
        rate = (tokens - at) / left if left > 0 else 0.0
        if base is None:
            own.start = rate * self.head_bytes
        known.extend([at + rate * (stop - begin) for stop in stops[len(known) :]])
        own.ends = known


def sketch(
    raw: bytes,
    body: dict[str, Any],
    reading: Reading | None,
    model: str,
    salt: int,
    *,
    vllm: bool,
) -> Sketch | None:
    """Return the sketch of a call's prompt; None if it is not in the body. reading: of a long body.
    vllm: the engine is vLLM, which leaves out the billing line at the beginning of a system prompt.
    """
    members = _each(raw if reading is None else reading.fresh)
    name = "input" if "input" in members else "prompt"
    if name in members and "messages" not in members and not _has_items(body[name]):
        return _text(raw, name, members, model, salt, vllm=vllm)
    if reading is None:
        reading = read(raw, body, members, ())
    if reading is None:
        return None
    digests = array("q")
    stops = [*reading.ends]
    at = reading.head
    if (known := reading.known) is not None:
        of, count = known.of, known.count
        # Digests of whole messages, and so those of `_digest` unless a message has a mark.
        digests.extend(of.digests[:count])
        begins = [of.head, *of.ends[: count - 1]]
        for index in {mark.message - of.first for mark in of.marks}:
            if 0 <= index < count:
                digests[index] = _digest(raw[begins[index] : of.ends[index]])
        stops = [*of.ends[:count], *stops]
        at = known.reach
    for stop in reading.ends:
        digests.append(_digest(raw[at:stop]))
        at = stop
    leading = raw[reading.begin + 1 : reading.head] if reading.first else b""
    head, billing, dropped, size = _head(members, leading)
    outline = Outline(model, salt, head, billing, vllm and dropped, digests)
    return Sketch(outline, reading.name, reading.first, reading.head, stops, size)


def _has_items(content: Any) -> bool:
    return type(content) is list and len(content) > 0 and type(content[0]) is not int


def _text(
    raw: bytes, name: str, members: Mapping[str, msgspec.Raw], model: str, salt: int, *, vllm: bool
) -> Sketch:
    """Return the sketch of a prompt that is a text: its pieces stand for messages."""
    piece = bytes(members[name])
    begin = max(0, raw.find(piece))
    # Without the end of the text, which another text may continue.
    end = max(0, len(piece) - 1)
    stops = [begin + min(stop, end) for stop in range(_PIECE, end + _PIECE, _PIECE)]
    pieces = zip([begin, *stops], stops, strict=False)
    digests = array("q", [hash(raw[at:stop]) for at, stop in pieces])
    head, billing, dropped, size = _head(members, b"")
    outline = Outline(model, salt, head, billing, vllm and dropped, digests)
    return Sketch(outline, name, None, begin, stops, size)


def _digest(piece: bytes) -> int:
    return hash(_MARK.sub(b"", piece) if b'"cache_control"' in piece else piece)


def _head(members: Mapping[str, msgspec.Raw], leading: bytes) -> tuple[int, int, bool, int]:
    """Return the digests of a head without its billing lines, and of these, whether each begins a
    text, and the head's bytes.
    """
    found: list[int] = []
    billing = size = 0
    dropped = True
    for name in (*_HEAD, *_OPTIONS, ""):
        piece = leading if not name else bytes(members[name]) if name in members else b""
        if not piece:
            continue
        size += len(piece)
        if b"x-anthropic-billing-header" in piece and name not in ("tools", "functions"):
            for match in _BILLING.finditer(piece):
                billing = hash((billing, match[0]))
                dropped = dropped and bool(match[1])
            piece = _BILLING.sub(rb"\1", piece)
        found.append(hash((name, _digest(piece))))
    return hash(tuple(found)), billing, dropped, size


class Head(NamedTuple):
    """The parts of a head. tools: digest of each. lines: digests of the system prompt's lines;
    loose: without dates, counters and ids. options: digest of the others.
    """

    tools: tuple[int, ...]
    lines: tuple[int, ...]
    loose: tuple[int, ...]
    options: int


def head_of(body: Mapping[str, Any]) -> Head:
    """Return the parts of a body's head."""
    lines = [line for _, line in _lines(body)]
    return Head(
        tuple([hash(piece) for piece in _tools(body)]),
        tuple(map(hash, lines)),
        tuple([hash(_LOOSE.sub("", line)) for line in lines]),
        hash(tuple([_digest(_json(body.get(name))) for name in _OPTIONS])),
    )


def head_change(before: Head, now: Head, raw: bytes, body: Mapping[str, Any]) -> Change:
    """Return the first difference between two heads with different digests, in the order of chat
    templates. raw, body: of the call with the head `now`.
    """
    if before.lines != now.lines:
        kind = "date or counter" if before.loose == now.loose else "system prompt"
        at = _first(before.lines, now.lines)
        places = list(_lines(body))
        path, line = places[at] if at < len(places) else ("system", "")
        byte = _find(raw, path.partition("[")[0], _escaped(line))
        if kind == "date or counter" and (found := _LOOSE.search(line)):
            byte += len(_escaped(line[: found.start()]))
        return Change(kind, path, _message(path), byte)
    if before.tools != now.tools:
        same = sorted(before.tools) == sorted(now.tools)
        at = _first(before.tools, now.tools)
        name = "tools" if body.get("tools") else "functions"
        tools = _tools(body)
        piece = tools[at] if at < len(tools) else b""
        byte = _find(raw, name, piece)
        return Change("tools reordered" if same else "tools", f"{name}[{at}]", None, byte)
    return Change("options", "", None, 0)


def billing_change(raw: bytes) -> Change:
    """Return the change of a billing line."""
    found = _BILLING.search(raw)
    return Change("billing line", "system", None, found.start() if found else 0)


def edit(before: Outline, now: Sketch, common: int) -> str:
    """Return the kind of an edit behind the common messages: "edited history", "edited text",
    "compaction", or "" if the new ones are another conversation with the same beginning (another
    question, a sub-agent, a repeated turn).
    """
    old, new = before.digests[common:], now.outline.digests[common:]
    if not old or not new:
        return ""
    if now.first is None:
        # Its last piece goes on in a longer text, and all pieces behind a change are others.
        return "edited text" if 1 < len(old) <= len(new) else ""
    shorter = len(new) < len(old)
    if not {*old[1:]}.isdisjoint(new) or not {*new[1:]}.isdisjoint(old):
        # Later messages are those of the earlier prompt.
        return "compaction" if shorter else "edited history"
    if len(new) > len(old):
        # The conversation goes on, without what was sent only once.
        return "edited history"
    begin = now.stops[common - 1] if common else now.begin
    summary = common <= _KEPT and len(new) <= _KEPT and len(old) >= _LONG
    return "compaction" if summary and now.stops[-1] - begin >= _SUMMARY else ""


# A compaction keeps few messages of many, and has a summary of so many bytes.
_KEPT: Final = 3
_LONG: Final = 8
_SUMMARY: Final = 1000


def _first(before: Sequence[int], now: Sequence[int]) -> int:
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(before), len(now)))


def _lines(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of a body's system prompt, each with the path of its text."""
    texts = [(name, body.get(name)) for name in ("system", "instructions")]
    for name in ("messages", "input"):
        messages = body.get(name)
        for index, message in enumerate(messages) if isinstance(messages, list) else ():
            if type(message) is not dict or message.get("role") not in ("system", "developer"):
                break
            texts.append((f"{name}[{index}]", message.get("content")))
    found: list[tuple[str, str]] = []
    for path, content in texts:
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                text = _BILLING_TEXT.sub("", text)
                found += [(path, line) for line in text.split("\n", _MOST_LINES)]
    return found[:_MOST_LINES]


_BILLING_TEXT: Final = re.compile(r"x-anthropic-billing-header[^\n]*\n?")


def _tools(body: Mapping[str, Any]) -> list[bytes]:
    tools = body.get("tools") or body.get("functions")
    return [_MARK.sub(b"", _json(tool)) for tool in tools] if isinstance(tools, list) else []


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return b""  # Nested too deeply; the engine will refuse it.


def _escaped(text: str) -> bytes:
    try:
        return orjson.dumps(text)[1:-1]
    except TypeError:
        return b""  # Lone surrogates.


def _find(raw: bytes, name: str, piece: bytes) -> int:
    """Return where a piece is in a body, or else the member that has it."""
    begin = max(0, raw.find(b'"%b"' % name.encode()))
    at = raw.find(piece, begin) if piece else -1
    return at if at >= 0 else begin


def _message(path: str) -> int | None:
    index = path.partition("[")[2].rstrip("]")
    return int(index) if index.isdigit() else None
