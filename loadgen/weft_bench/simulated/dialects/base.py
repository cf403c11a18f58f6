"""The parts that all APIs share: a parsed call and the pieces of an answer. Pure."""

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
    """The call is invalid. status: HTTP status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed call.

    prompt: whole tokens. limit: maximum answer tokens, 0 for the engine's default. exactly: whether
    the answer has as many tokens as the limit. tool: the tool to call.
    """

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
        """Return the usage in the format of Chat Completions and Completions."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Dialect(ABC):
    """One answer in one API's format. Each API is a subclass.

    number: of this answer, for its id. text: of the whole answer. cut_off: whether the limit ends
    the answer. Frames are whole SSE events.
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
        """Return the text of a token, from 0."""
        start = number * tokens.TOKEN_BYTES
        return self.text[start : start + tokens.TOKEN_BYTES]

    @classmethod
    @abstractmethod
    def read(cls, body: Mapping[str, Any], told: Mapping[str, bytes]) -> Asked:
        """Read a call. Raises Refused.

        The mapping holds the text up to each stored answer's end, by answer id, for APIs that
        continue answers.
        """

    @abstractmethod
    def plain(self, usage: Usage) -> bytes:
        """Return the body of an answer in one piece."""

    @abstractmethod
    def opening(self, usage: Usage) -> Sequence[bytes]:
        """Return the frames before the first token."""

    @abstractmethod
    def token(self, number: int) -> bytes:
        """Return the frame of a token, from 0."""

    @abstractmethod
    def closing(self, usage: Usage) -> tuple[bytes, bytes]:
        """Return the frames after the last token, and the final frame.

        The report goes between them.
        """


def event(data: Any, name: str = "") -> bytes:
    """Return an SSE event with a JSON body."""
    head = b"event: %b\n" % name.encode() if name else b""
    return head + b"data: %b\n\n" % orjson.dumps(data)


def limit(body: Mapping[str, Any], *names: str) -> int:
    """Return the first given limit, or 0. Raises Refused if it is not a valid number of tokens."""
    for name in names:
        value = body.get(name)
        if value is not None:
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= _LONGEST_ANSWER:
                raise Refused(f"{name} must be 1 to {_LONGEST_ANSWER} tokens, got {value!r}")
            return int(value)
    return 0


def said(message: Any) -> bytes:
    """Return a message as tokens: its role, its text, and its other fields as JSON."""
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
    """Return the marker before a role's text."""
    return tokens.pad(f"<{name}>".encode())


def text_of(content: Any) -> bytes:
    """Return the text of a message's content. Other parts become JSON."""
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
    """Return the tools as they appear before the messages."""
    found = body.get("tools")
    return _json(found) if found else b""


def _json(value: Any) -> bytes:
    return tokens.pad(orjson.dumps(value))


def messages_of(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list of messages. Raises Refused if it is missing or empty."""
    found = body.get(name)
    if not isinstance(found, list) or not found:
        raise Refused(f"{name} must be a list of messages")
    return found


def one_answer(body: Mapping[str, Any]) -> None:
    """Raise Refused for several answers to one call, which are not simulated."""
    for name in ("n", "best_of"):
        if body.get(name) not in (None, 1):
            raise Refused(f"{name} above 1 is not simulated")


def include_usage(body: Mapping[str, Any]) -> bool:
    """Return whether a stream must end with its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))
