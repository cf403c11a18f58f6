"""Predicts the next turn of a program while its tools run, to prefill it (Sutradhara 4.1).

Prefilling pays if the next turn does not begin with the cached tokens: the template renders the
answer differently from its generation (reasoning dropped, arguments reformatted), or the system
prompt changes with the tools that were called. Both are learned from earlier turns: the tokens that
each kind of turn lost, and which head (tools and system messages) follows which, after which tools.
No I/O and no clock. A wrong prediction costs one unused prefill.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson

from weft_gateway.model import ProgramKey
from weft_gateway.policies.unseen import seen_message
from weft_gateway.transcripts.transcript import count_of, expanded

# Below this number of tokens, a prefill costs more than it saves.
MIN_GAIN_TOKENS: Final = 256
_SEEN_BEFORE: Final = 2  # Turns with the same result before a prediction uses it.
_WEIGHT: Final = 0.3
_THREADS: Final = 4096
_KINDS: Final = 1024
_MAX_HEAD_BYTES: Final = 1 << 18
# As JSON; parsed objects take several times as much.
_MAX_HEADS_BYTES: Final = 1 << 24
_HEAD_ROLES: Final = ("system", "developer")

_K = TypeVar("_K")
_V = TypeVar("_V")


class Head(NamedTuple):
    """The tools and the leading system messages of a chat, with a hash of both and their size as
    JSON.
    """

    tools: Any
    system: tuple[Mapping[str, Any], ...]
    digest: bytes
    size: int


class _Bounded(OrderedDict[_K, _V], Generic[_K, _V]):
    """Keeps the most recent entries. limit: number of entries; limit_bytes: total size."""

    def __init__(self, limit: int, limit_bytes: int = 0) -> None:
        super().__init__()
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._sizes: dict[_K, int] = {}
        self.bytes = 0

    def put(self, key: _K, value: _V, size: int = 0) -> None:
        """Add an entry as the newest. size: its bytes, if they are limited."""
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
    """The last turn of a thread that called tools. kind: hash of the head and the tools called.
    head: hash of the head. held: tokens of its prompt and answer, which are cached.
    """

    kind: bytes
    head: bytes
    messages: int
    held: int


@dataclass(slots=True)
class _Kind:
    """The turns that followed one kind of turn. lost: tokens of it that were not in the cache, a
    moving average over turns with an unchanged head. nexts: how often the same head has followed in
    a row.
    """

    turns: int = 0
    lost: float = 0.0
    head: Head | None = None
    nexts: int = 0


@dataclass(slots=True)
class NextTurnPredictor:
    """Learns from turns, and predicts the next one. min_gain: tokens."""

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
        """Learn from a turn that may follow one that called tools. cached_tokens: tokens of its
        prompt found in the cache; None if the turn was prefilled.
        """
        turn = self._turns.pop((key, thread), None)
        if turn is None:
            return
        head = head_of(body)
        messages = body.get("messages")
        if head is None or not isinstance(messages, list) or count_of(messages) <= turn.messages:
            return
        kind = self._kinds.get(turn.kind) or _Kind()
        same = kind.head is not None and kind.head.digest == head.digest
        kind.nexts = kind.nexts + 1 if same else 1
        kind.head = head
        if head.digest == turn.head and cached_tokens is not None:
            lost = max(0, turn.held - cached_tokens)
            kind.lost += (lost - kind.lost) * (_WEIGHT if kind.turns else 1.0)
            kind.turns += 1
        self._kinds.put(turn.kind, kind, head.size)

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
        """Learn from a turn that has ended with `answer`, a message that calls tools. held: tokens
        of its prompt and answer. wanted: the client announces the next turn. Returns the predicted
        beginning of the next turn as a body with messages and tools, if a prefill pays.
        """
        head = head_of(body)
        messages = body.get("messages")
        if head is None or not isinstance(messages, list):
            return None
        kind_key = b"\0".join((key.tenant.encode(), head.digest, *_names(answer)))
        self._turns.put((key, thread), _Turn(kind_key, head.digest, count_of(messages), held))
        kind = self._kinds.get(kind_key)
        following = head
        gain = 0.0
        if kind is not None and kind.head is not None and kind.nexts >= _SEEN_BEFORE:
            following = kind.head
            if following.digest != head.digest:
                gain = held
            elif kind.turns >= _SEEN_BEFORE:
                gain = kind.lost
        if gain < self.min_gain and not (wanted and held >= self.min_gain):
            return None
        rest = expanded(messages[len(head.system) :])
        ahead: dict[str, Any] = {"messages": [*following.system, *rest, said_again(answer)]}
        if following.tools:
            ahead["tools"] = following.tools
        return ahead

    def __len__(self) -> int:
        return len(self._turns) + len(self._kinds)


def head_of(body: Mapping[str, Any]) -> Head | None:
    """Return the head of a chat; None if the body is no chat, or the head is too long or deep."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return None
    system = []
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in _HEAD_ROLES:
            break
        system.append(message)
    tools = body.get("tools")
    try:
        raw = orjson.dumps([tools, [*map(seen_message, system)]], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None
    if len(raw) > _MAX_HEAD_BYTES:
        return None
    return Head(tools, tuple(system), hashlib.blake2b(raw, digest_size=16).digest(), len(raw))


def said_again(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer's message as the next request contains it: without reasoning and empty
    fields.
    """
    kept = ("role", "content", "tool_calls")
    return {name: answer[name] for name in kept if answer.get(name) is not None}


def _names(answer: Mapping[str, Any]) -> Sequence[bytes]:
    """Return the sorted names of the tools that an answer calls, without duplicates."""
    names = set()
    calls = answer.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.add(name.encode("utf-8", "surrogatepass"))
    return sorted(names)
