"""What all dialects share: a call as it was read, and the pieces of an answer. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import orjson

from weft_bench.simulated import tokens
from weft_bench.simulated.dialects.tools import ToolCall

CREATED: Final = 1_700_000_000
_LONGEST_ANSWER: Final = 1_000_000


class Refused(ValueError):
    """The call cannot be served. The message says why; status: of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as its dialect has read it. prompt: as whole tokens. limit: tokens at most, 0 for what
    the engine likes. exactly: as many as the limit, whatever is said. tool: to be called."""

    prompt: bytes
    limit: int
    exactly: bool
    stream: bool
    include_usage: bool = True
    tool: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    def openai(self) -> dict[str, Any]:
        """As Chat Completions and Completions have it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Dialect(ABC):
    """One answer in one API's words. A subclass is the API.

    number: of this answer, for its id. text: the whole of it. tokens: how many it is. cut_off:
    whether it ends by its limit. Frames are whole SSE events.
    """

    kind: ClassVar[str]

    def __init__(self, model: str, number: int, asked: Asked, text: str, cut_off: bool) -> None:
        self.model = model
        self.id = f"{self.kind}-simulated-{number:x}"
        self.asked = asked
        self.text = text
        self.cut_off = cut_off
        self.tokens = -(-len(text) // tokens.TOKEN_BYTES)

    def piece(self, number: int) -> str:
        """The text of a token, from 0."""
        start = number * tokens.TOKEN_BYTES
        return self.text[start : start + tokens.TOKEN_BYTES]

    @classmethod
    @abstractmethod
    def read(cls, body: Mapping[str, Any], told: Mapping[str, bytes]) -> Asked:
        """Read a call. told: what was said so far by id, for dialects that continue an answer.
        Raises Refused."""

    @abstractmethod
    def plain(self, usage: Usage) -> bytes:
        """The body of an answer in one piece."""

    @abstractmethod
    def opening(self, usage: Usage) -> Sequence[bytes]:
        """Frames before the first token."""

    @abstractmethod
    def token(self, number: int) -> bytes:
        """The frame of a token, from 0."""

    @abstractmethod
    def closing(self, usage: Usage) -> tuple[bytes, bytes]:
        """Frames after the last token, and the very last frame, before which the report stands."""


def event(data: Any, name: str = "") -> bytes:
    """An SSE event with a JSON body."""
    head = b"event: %b\n" % name.encode() if name else b""
    return head + b"data: %b\n\n" % orjson.dumps(data)


def limit(body: Mapping[str, Any], *names: str) -> int:
    """The first limit that is given; 0 if none. Refused if it is no number of tokens."""
    for name in names:
        value = body.get(name)
        if value is not None:
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= _LONGEST_ANSWER:
                raise Refused(f"{name} must be 1 to {_LONGEST_ANSWER} tokens, got {value!r}")
            return int(value)
    return 0


def said(message: Any) -> bytes:
    """A message as tokens: its role, its text, and whatever else it holds as JSON."""
    if not isinstance(message, Mapping):
        raise Refused("a message must be an object")
    known = {"role", "content", "id", "status", "refusal", "annotations"}
    rest = {
        name: value
        for name, value in message.items()
        if name not in known and value and not (name == "type" and value == "message")
    }
    head = role(str(message.get("role", "")))
    return head + tokens.pad(text_of(message.get("content"))) + (_json(rest) if rest else b"")


def role(name: str) -> bytes:
    """What stands before what a role says."""
    return tokens.pad(f"<{name}>".encode())


def text_of(content: Any) -> bytes:
    """The text of a message's content; parts that are no text as JSON."""
    if content is None:
        return b""
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, list):
        raise Refused("content must be text or a list of parts")
    found = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else None
        found.append(text.encode() if isinstance(text, str) else _json(part))
    return b"".join(found)


def of_tools(body: Mapping[str, Any]) -> bytes:
    """The tools as they stand before the messages."""
    found = body.get("tools")
    return _json(found) if found else b""


def _json(value: Any) -> bytes:
    return tokens.pad(orjson.dumps(value))


def messages_of(body: Mapping[str, Any], name: str) -> list[Any]:
    """The list of messages. Refused if there is none."""
    found = body.get(name)
    if not isinstance(found, list) or not found:
        raise Refused(f"{name} must be a list of messages")
    return found


def one_answer(body: Mapping[str, Any]) -> None:
    """Refuse what is not simulated: several answers to one call."""
    for name in ("n", "best_of"):
        if body.get(name) not in (None, 1):
            raise Refused(f"{name} above 1 is not simulated")


def include_usage(body: Mapping[str, Any]) -> bool:
    """Whether a stream is to end with its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))
