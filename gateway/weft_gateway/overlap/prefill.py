"""Prompt splitting: the announced prefix of a next turn while its tools run (Sutradhara 4.1).

`submit_partial_prefill` announces the messages that do not depend on the tools, and returns a
handle; `extend_prefill` sends the whole turn. A handle stores digests of the announced messages, to
check that the turn begins with them, and the cost of the prefill, to compute the saving. It has a
JSON form, so that any gateway can read it. No I/O and no clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec
import orjson
from weft_engine.wire import CallReport

from weft_gateway.model import ProgramKey
from weft_gateway.policies.unseen import seen_message

MAX_TTL_S: Final = 300.0
# A false match costs a prefill and never changes an answer, so short digests are enough.
_DIGEST_BYTES: Final = 4
# Messages that are compared with a turn's. An attribute of a program limits the stored text.
_MOST_MESSAGES: Final = 1024


class PrefillState(StrEnum):
    """RUNNING: the prefill is computed or waits. DONE: its KV is cached. FAILED: it is not, and the
    turn is computed as any other.
    """

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class PrefillError(ValueError):
    """An invalid handle or turn. `code`: `prefill_prefix_mismatch` or `prefill_invalid`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Prefill:
    """One handle. prefix: digests from `announced`. replica: holds its KV. by_itself: the gateway
    predicted the turn. created_s, expires_s, taken_s: Unix time; taken_s is the arrival of the
    turn, 0 before. used: the turn was answered, as known to this gateway. report: the engine's
    report on the prefill.
    """

    id: str
    key: ProgramKey
    model: str
    prefix: tuple[bytes, ...]
    replica: str
    created_s: float
    expires_s: float
    state: PrefillState = PrefillState.RUNNING
    by_itself: bool = False
    taken_s: float = 0.0
    used: bool = False
    report: CallReport | None = None
    detail: str = ""

    @classmethod
    def fresh(
        cls,
        id: str,
        key: ProgramKey,
        model: str,
        prefix: tuple[bytes, ...],
        replica: str,
        now_s: float,
        ttl_s: float,
        *,
        by_itself: bool = False,
    ) -> Prefill:
        """Create a handle that lives `ttl_s` seconds, at most MAX_TTL_S."""
        expires_s = now_s + min(max(ttl_s, 0.0), MAX_TTL_S)
        prefix = prefix[: 1 + _MOST_MESSAGES]
        return cls(id, key, model, prefix, replica, now_s, expires_s, by_itself=by_itself)

    def to_fields(self) -> dict[str, Any]:
        """Return the handle as members of a JSON object."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    def outcome(self) -> dict[str, Any]:
        """Return the members that the prefill's end sets."""
        fields = self.to_fields()
        return {name: fields[name] for name in ("state", "report", "detail")}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Prefill:
        """The reverse of `to_fields`. Raises msgspec.ValidationError."""
        return msgspec.convert(fields, cls)

    def take(self, model: str, body: Mapping[str, Any], now_s: float) -> None:
        """Assign the turn to the handle. Raises PrefillError, without a change, if the turn does
        not begin with the announced messages.
        """
        turn, prefix = announced(body), self.prefix
        reason = ""
        if model != self.model:
            reason = f"it is for the model {self.model!r}"
        elif turn[0] != prefix[0]:
            reason = "its tools or template settings differ"
        elif turn[: len(prefix)] != prefix:
            same = 0
            while same < min(len(turn), len(prefix)) and turn[same] == prefix[same]:
                same += 1
            reason = f"message {same - 1} differs"
        if reason:
            raise PrefillError(
                "prefill_prefix_mismatch",
                f"This turn does not begin with the announced messages: {reason}. "
                "Send it as an ordinary call, or announce its own prefix.",
            )
        self.taken_s = self.taken_s or now_s

    def to_json(self) -> dict[str, Any]:
        """Return the handle in the form of the API."""
        report = self.report
        return {
            "id": self.id,
            "object": "weft.prefill",
            "session_id": self.key.program,
            "model": self.model,
            "messages": len(self.prefix) - 1,
            "status": self.state,
            "detail": self.detail or None,
            "replica": self.replica,
            "created_at": self.created_s,
            "expires_at": self.expires_s,
            "prompt_tokens": report.prompt_tokens if report is not None else None,
            "service_s": report.service_s if report is not None else None,
        }

    def saved_s(self, turn: CallReport) -> float:
        """Return the seconds of model execution that the prefill saved `turn`: the prefill's
        service, times the share of its computed tokens that the turn found in the cache. At most
        the time between announcement and turn.
        """
        report = self.report
        if report is None or not self.taken_s:
            return 0.0
        computed = report.prompt_tokens - report.cached_tokens
        found = min(turn.cached_tokens, report.prompt_tokens) - report.cached_tokens
        if computed <= 0 or found <= 0:
            return 0.0
        return min(report.service_s * found / computed, max(0.0, self.taken_s - self.created_s))


def announced(body: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return short digests: of the body's tools and template settings, then of each message.
    Turns that are equal for an engine have equal digests. Raises PrefillError if the body is no
    chat.
    """
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise PrefillError("prefill_invalid", "messages must be a list with at least one message.")
    if not all(isinstance(message, dict) for message in messages):
        raise PrefillError("prefill_invalid", "Each message must be an object.")
    if not isinstance(body.get("tools"), list | None):
        raise PrefillError("prefill_invalid", "tools must be a list.")
    head = [body.get("tools") or None, body.get("chat_template"), body.get("chat_template_kwargs")]
    try:
        return tuple(
            _digest(orjson.dumps(part, option=orjson.OPT_SORT_KEYS))
            for part in (head, *map(_without_empty, messages))
        )
    except orjson.JSONEncodeError as error:
        raise PrefillError("prefill_invalid", f"The messages cannot be read: {error}") from None


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()


def _without_empty(message: Mapping[str, Any]) -> dict[str, Any]:
    """Drop empty members: clients return them as null, as empty text, or not at all."""
    items = seen_message(message).items()
    return {name: value for name, value in items if value not in (None, "", [])}
