"""Whether and what to prefill for a program by itself, while its tools run (Sutradhara 4.1).

It pays where the next turn does not begin with what the cache holds: the answer is written out in
another way than it was generated (reasoning dropped, arguments formatted anew), or the system
prompt changes with the tools that were called. Both are learned from turns that came: how many
tokens each kind of turn had lost, and which head (tools and system messages) follows which, after
which tools. No I/O and no clock; what is wrong costs a prefill that nobody extends.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import orjson

from weft_gateway.model import ProgramKey

# Below so many tokens a prefill saves less than the call that makes it costs.
MIN_GAIN_TOKENS: Final = 256
_SEEN_BEFORE: Final = 2  # Turns that must have shown the same before it is counted on.
_WEIGHT: Final = 0.3
_THREADS: Final = 4096
_KINDS: Final = 1024
_MAX_HEAD_BYTES: Final = 1 << 18
# As JSON; parsed they take some times as much.
_MAX_HEADS_BYTES: Final = 1 << 24
_HEAD_ROLES: Final = ("system", "developer")

Head = tuple[Any, tuple[Mapping[str, Any], ...]]
_K = TypeVar("_K")
_V = TypeVar("_V")


class _Bounded(OrderedDict[_K, _V], Generic[_K, _V]):
    """Keeps the entries that were put last. limit: of entries; limit_bytes: of all together."""

    def __init__(self, limit: int, limit_bytes: int = 0) -> None:
        super().__init__()
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._sizes: dict[_K, int] = {}
        self.bytes = 0

    def put(self, key: _K, value: _V, size: int = 0) -> None:
        """Keep it as the newest. size: its bytes, where they are limited."""
        self[key] = value
        self.move_to_end(key)
        if size:
            self.bytes += size - self._sizes.get(key, 0)
            self._sizes[key] = size
        while len(self) > self._limit or (self.bytes > self._limit_bytes and len(self) > 1):
            oldest, _ = self.popitem(last=False)
            self.bytes -= self._sizes.pop(oldest, 0)


@dataclass(slots=True)
class _Turn:
    """The last turn of a thread that called tools. kind: of the head and the tools called. held:
    tokens of its prompt and answer, which the cache holds."""

    kind: bytes
    head: bytes
    messages: int
    held: int


@dataclass(slots=True)
class _Kind:
    """What followed turns of one kind. lost: tokens of them that were not found, a moving average
    over the turns whose head stayed. nexts: how often the same head has followed in a row."""

    turns: int = 0
    lost: float = 0.0
    head: Head | None = None
    digest: bytes = b""
    nexts: int = 0


@dataclass(slots=True)
class NextTurnPredictor:
    """Learns, and says what to prefill. min_gain: tokens."""

    min_gain: int = MIN_GAIN_TOKENS
    _turns: _Bounded[tuple[ProgramKey, str], _Turn] = field(
        default_factory=lambda: _Bounded[tuple[ProgramKey, str], _Turn](_THREADS)
    )
    _kinds: _Bounded[bytes, _Kind] = field(
        default_factory=lambda: _Bounded[bytes, _Kind](_KINDS, _MAX_HEADS_BYTES)
    )

    def came(
        self, key: ProgramKey, thread: str, body: Mapping[str, Any], cached_tokens: int | None
    ) -> None:
        """A turn has ended that may be the next one of a turn that called tools. cached_tokens: of
        its prompt, found in the cache; None where that was no cache's doing (it was prefilled)."""
        turn = self._turns.pop((key, thread), None)
        if turn is None:
            return
        head = head_of(body)
        messages = body.get("messages")
        if head is None or not isinstance(messages, list) or len(messages) <= turn.messages:
            return
        kind = self._kinds.get(turn.kind) or _Kind()
        digest = _digest(head)
        kind.nexts = kind.nexts + 1 if digest == kind.digest else 1
        kind.head, kind.digest = head, digest
        if digest == turn.head and cached_tokens is not None:
            lost = max(0, turn.held - cached_tokens)
            kind.lost += (lost - kind.lost) * (_WEIGHT if kind.turns else 1.0)
            kind.turns += 1
        self._kinds.put(turn.kind, kind, len(_written(head)))

    def called(
        self,
        key: ProgramKey,
        thread: str,
        body: Mapping[str, Any],
        answer: Mapping[str, Any],
        held: int,
        *,
        wanted: bool = False,
    ) -> dict[str, Any] | None:
        """A turn has ended with `answer`, a message that calls tools. held: tokens of its prompt
        and answer. wanted: the client says that the next turn will come. Returns what the next turn
        is thought to begin with, as a body with messages and tools, where a prefill pays."""
        head = head_of(body)
        messages = body.get("messages")
        if head is None or not isinstance(messages, list):
            return None
        digest = _digest(head)
        names = sorted(_names(answer))
        kind_key = b"\0".join((key.tenant.encode(), digest, *names))
        self._turns.put((key, thread), _Turn(kind_key, digest, len(messages), held))
        kind = self._kinds.get(kind_key)
        following = head
        gain = 0.0
        if kind is not None and kind.head is not None and kind.nexts >= _SEEN_BEFORE:
            following = kind.head
            gain = held if kind.digest != digest else kind.lost
            if kind.digest == digest and kind.turns < _SEEN_BEFORE:
                gain = 0.0
        if gain < self.min_gain and not (wanted and held >= self.min_gain):
            return None
        tools, system = following
        rest = messages[len(head[1]) :]
        ahead: dict[str, Any] = {"messages": [*system, *rest, said_again(answer)]}
        if tools:
            ahead["tools"] = tools
        return ahead

    def __len__(self) -> int:
        return len(self._turns) + len(self._kinds)


def head_of(body: Mapping[str, Any]) -> Head | None:
    """The tools and the leading system messages of a chat; None where there is no chat, or they are
    longer than is remembered."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return None
    system = []
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in _HEAD_ROLES:
            break
        system.append(message)
    head = (body.get("tools"), tuple(system))
    try:
        return head if len(_digest(head)) else None
    except ValueError:
        return None


def said_again(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer's message as the next request brings it: without reasoning and what is empty."""
    kept = ("role", "content", "tool_calls")
    return {name: answer[name] for name in kept if answer.get(name) is not None}


def _digest(head: Head) -> bytes:
    """The same for the same head. ValueError as in `_written`."""
    return hashlib.blake2b(_written(head), digest_size=16).digest()


def _written(head: Head) -> bytes:
    """Bytes that are the same for the same head. ValueError for one that is too long or deep."""
    try:
        raw = orjson.dumps([head[0], list(head[1])], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise ValueError("too deep") from error
    if len(raw) > _MAX_HEAD_BYTES:
        raise ValueError("too long")
    return raw


def _names(answer: Mapping[str, Any]) -> Sequence[bytes]:
    """The tools that an answer calls, each once."""
    names = set()
    calls = answer.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.add(name.encode("utf-8", "surrogatepass"))
    return tuple(names)
