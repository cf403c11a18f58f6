"""Prompt splitting: what was announced of a next turn while its tools run (Sutradhara 4.1).

`submit_partial_prefill` announces the messages that do not depend on the tools, and gets a handle;
`extend_prefill` brings the whole turn. A handle has the announcement, so that a turn which does not
begin with it is noticed, and what the prefill has cost, so that what it saved is known; as texts,
so that any gateway may have to do with it. No I/O and no clock.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson
from weft_engine.wire import CallReport

from weft_gateway.model import ProgramKey

MAX_TTL_S: Final = 300.0
# Under this name the process table says that a program has handles.
MARK: Final = "prefills"
_DIGEST_BYTES: Final = 8


class PrefillState(StrEnum):
    """RUNNING: an engine works on it, or has not begun. DONE: its KV is there. FAILED: it is not,
    and the turn will be computed as any other."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class PrefillError(ValueError):
    """A handle or a turn that cannot be taken. `code`: `prefill_prefix_mismatch` or
    `prefill_invalid`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Prefill:
    """One handle. prefix: what was announced, as `announced` gives it. replica: where its KV is.
    by_itself: the gateway foresaw the turn. created_s, expires_s, taken_s: Unix time; taken_s when
    the turn came, 0 before. used: and was answered, as this gateway knows. report: what the engine
    said when the prefill was done."""

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
        key: ProgramKey,
        model: str,
        prefix: tuple[bytes, ...],
        replica: str,
        now_s: float,
        ttl_s: float,
        *,
        by_itself: bool = False,
    ) -> Prefill:
        """A new one, for `ttl_s` seconds, at most MAX_TTL_S."""
        expires_s = now_s + min(max(ttl_s, 0.0), MAX_TTL_S)
        name = f"pf_{secrets.token_hex(12)}"
        return cls(name, key, model, prefix, replica, now_s, expires_s, by_itself=by_itself)

    def to_fields(self) -> dict[str, str]:
        """As named texts; the tenant is not among them."""
        return {
            "id": self.id,
            "program": self.key.program,
            "model": self.model,
            "prefix": b"".join(self.prefix).hex(),
            "replica": self.replica,
            "created": repr(self.created_s),
            "expires": repr(self.expires_s),
            "by_itself": "1" if self.by_itself else "",
            "taken": repr(self.taken_s),
            **self.outcome(),
        }

    def outcome(self) -> dict[str, str]:
        """Those texts that say what has become of the prefill."""
        report = self.report.to_json() if self.report is not None else ""
        return {"state": self.state.value, "report": report, "detail": self.detail}

    @classmethod
    def from_fields(cls, tenant: str, fields: Mapping[str, str]) -> Prefill:
        """The reverse of `to_fields`."""
        flat, report = bytes.fromhex(fields["prefix"]), fields["report"]
        return cls(
            fields["id"],
            ProgramKey(tenant, fields["program"]),
            fields["model"],
            tuple(flat[at : at + _DIGEST_BYTES] for at in range(0, len(flat), _DIGEST_BYTES)),
            fields["replica"],
            float(fields["created"]),
            float(fields["expires"]),
            PrefillState(fields["state"]),
            bool(fields["by_itself"]),
            float(fields["taken"]),
            report=CallReport.from_json(report) if report else None,
            detail=fields["detail"],
        )

    def take(self, model: str, body: Mapping[str, Any], now_s: float) -> None:
        """The turn has come. PrefillError, and nothing has changed, where it does not begin with
        what was announced."""
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
                f"This turn does not begin with what was announced: {reason}. "
                "Send it as an ordinary call, or announce its own prefix.",
            )
        self.taken_s = self.taken_s or now_s

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
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
        """Seconds of model execution that `turn` did not need since this was done before it came:
        the prefill's service, by the share of the tokens computed then that the turn found in the
        cache, and no more than the time between announcement and turn."""
        report = self.report
        if report is None or not self.taken_s:
            return 0.0
        computed = report.prompt_tokens - report.cached_tokens
        found = min(turn.cached_tokens, report.prompt_tokens) - report.cached_tokens
        if computed <= 0 or found <= 0:
            return 0.0
        return min(report.service_s * found / computed, max(0.0, self.taken_s - self.created_s))


def announced(body: Mapping[str, Any]) -> tuple[bytes, ...]:
    """What a turn begins with, as digests of 8 bytes: of its tools and template settings, then of
    each message; two turns that mean the same to an engine have the same. PrefillError for what is
    no chat."""
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
    """Clients bring back what is absent as null, as empty text, or not at all."""
    return {name: value for name, value in message.items() if value not in (None, "", [])}
