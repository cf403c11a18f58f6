"""Prompt splitting: what was announced of a next turn while its tools run (Sutradhara 4.1).

`submit_partial_prefill` announces the messages that do not depend on the tools, and gets a handle;
`extend_prefill` brings the whole turn. What is kept here is the announcement, so that a turn which
does not begin with it is noticed, and what the prefill has cost, so that what it saved is known.
No I/O and no clock.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from engine_patches.wire import CallReport
from gateway.model import ProgramKey

MAX_TTL_S: Final = 300.0
_PER_TENANT: Final = 256
_IN_ALL: Final = 8192


class PrefillState(StrEnum):
    """RUNNING: an engine works on it, or has not begun. DONE: its KV is there. FAILED: it is not,
    and the turn will be computed as any other."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class PrefillError(ValueError):
    """A handle or a turn that cannot be taken. `code`: `prefill_not_found`, `prefill_expired`,
    `prefill_prefix_mismatch`, `prefill_invalid` or `too_many_prefills`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Prefill:
    """One handle. prefix: what was announced, as `announced` gives it. replica: where its KV is.
    by_itself: the gateway foresaw the turn. created_s, expires_s, taken_s: Unix time; taken_s when
    the turn came, 0 before. used: and was answered. report: what the engine said when the prefill
    was done."""

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
    done_s: float = 0.0
    report: CallReport | None = None
    detail: str = ""

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
    """What a turn begins with: its tools and template settings, then each message; two turns that
    mean the same to an engine have the same. PrefillError for what is no chat."""
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
            orjson.dumps(part, option=orjson.OPT_SORT_KEYS)
            for part in (head, *map(_without_empty, messages))
        )
    except orjson.JSONEncodeError as error:
        raise PrefillError("prefill_invalid", f"The messages cannot be read: {error}") from None


def _without_empty(message: Mapping[str, Any]) -> dict[str, Any]:
    """Clients bring back what is absent as null, as empty text, or not at all."""
    return {name: value for name, value in message.items() if value not in (None, "", [])}


@dataclass(slots=True)
class Prefills:
    """The handles of one gateway, bounded by tenant and in all."""

    per_tenant: int = _PER_TENANT
    in_all: int = _IN_ALL
    _kept: OrderedDict[str, Prefill] = field(default_factory=OrderedDict)
    _tenants: dict[str, int] = field(default_factory=dict)
    _programs: dict[ProgramKey, list[Prefill]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._kept)

    def begin(
        self,
        key: ProgramKey,
        model: str,
        prefix: tuple[bytes, ...],
        replica: str,
        now_s: float,
        ttl_s: float,
        *,
        by_itself: bool = False,
    ) -> Prefill:
        """A new handle, for `ttl_s` seconds, at most MAX_TTL_S. PrefillError where the tenant has
        too many."""
        if self._tenants.get(key.tenant, 0) >= self.per_tenant or len(self._kept) >= self.in_all:
            raise PrefillError(
                "too_many_prefills", f"At most {self.per_tenant} prefills may be open at once."
            )
        expires_s = now_s + min(max(ttl_s, 0.0), MAX_TTL_S)
        prefill = Prefill(
            f"pf_{secrets.token_hex(12)}",
            key,
            model,
            prefix,
            replica,
            now_s,
            expires_s,
            by_itself=by_itself,
        )
        self._kept[prefill.id] = prefill
        self._programs.setdefault(key, []).append(prefill)
        self._tenants[key.tenant] = self._tenants.get(key.tenant, 0) + 1
        return prefill

    def find(self, tenant: str, prefill_id: str, now_s: float) -> Prefill:
        """A tenant's handle. PrefillError where there is none, or it has expired."""
        prefill = self._kept.get(prefill_id)
        if prefill is None or prefill.key.tenant != tenant:
            raise PrefillError("prefill_not_found", f"No prefill with id {prefill_id!r}.")
        if prefill.expires_s <= now_s:
            raise PrefillError("prefill_expired", f"The prefill {prefill_id!r} has expired.")
        return prefill

    def take(self, prefill: Prefill, model: str, body: Mapping[str, Any], now_s: float) -> None:
        """The turn has come. PrefillError, and nothing has changed, where it does not begin with
        what was announced."""
        turn = announced(body)
        reason = ""
        if model != prefill.model:
            reason = f"it is for the model {prefill.model!r}"
        elif turn[0] != prefill.prefix[0]:
            reason = "its tools or template settings differ"
        elif turn[: len(prefill.prefix)] != prefill.prefix:
            same = 0
            while same < min(len(turn), len(prefill.prefix)) and turn[same] == prefill.prefix[same]:
                same += 1
            reason = f"message {same - 1} differs"
        if reason:
            raise PrefillError(
                "prefill_prefix_mismatch",
                f"This turn does not begin with what was announced: {reason}. "
                "Send it as an ordinary call, or announce its own prefix.",
            )
        prefill.taken_s = prefill.taken_s or now_s

    def drop(self, prefill: Prefill) -> None:
        """Forget a handle."""
        if self._kept.pop(prefill.id, None) is not None:
            left = self._tenants[prefill.key.tenant] - 1
            if left:
                self._tenants[prefill.key.tenant] = left
            else:
                del self._tenants[prefill.key.tenant]
            there = self._programs[prefill.key]
            there.remove(prefill)
            if not there:
                del self._programs[prefill.key]

    def expired(self, now_s: float) -> list[Prefill]:
        """Forget the handles whose time is over, and return them."""
        gone = [prefill for prefill in self._kept.values() if prefill.expires_s <= now_s]
        for prefill in gone:
            self.drop(prefill)
        return gone

    def of_program(self, key: ProgramKey) -> list[Prefill]:
        """A program's handles."""
        return list(self._programs.get(key, ()))
