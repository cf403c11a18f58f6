"""What `POST /weft/kv` asks for, as the engine and its simulated twin both read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

KV_ACTIONS: Final = ("retain", "release", "give_up", "forget", "priority")
# Thirty thousand years: what is more was not meant.
_LONGEST_S: Final = 1e12


@dataclass(frozen=True, slots=True)
class KvCommand:
    """Advice about one program's KV blocks. ValueError, in words for the client, for what is none.

    ttl_s: how long to retain, or until the priority ends, seconds; 0: a priority without an end.
    priority: tiers to raise or lower. tokens: retain only what
    a context's first so many hold; None for all of it.
    """

    action: str
    program: str
    ttl_s: float = 0.0
    priority: int = 0
    tokens: int | None = None

    def __post_init__(self) -> None:
        if self.action not in KV_ACTIONS:
            *others, last = KV_ACTIONS
            raise ValueError(f"action must be {', '.join(others)} or {last}, got {self.action!r}")
        if not isinstance(self.program, str) or not self.program:
            raise ValueError("program must be a name")
        seconds = isinstance(self.ttl_s, int | float) and not isinstance(self.ttl_s, bool)
        # Not-a-number fails both comparisons.
        if not (seconds and 0 <= self.ttl_s <= _LONGEST_S):
            raise ValueError(f"ttl_s must be seconds, got {self.ttl_s!r}")
        if self.action == "retain" and not self.ttl_s:
            raise ValueError("ttl_s is needed to retain")
        reach = 0 if self.tokens is None else self.tokens
        for name, value in (("priority", self.priority), ("tokens", reach)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} must be a whole number, got {value!r}")

    @classmethod
    def from_body(cls, body: Any) -> KvCommand:
        """Out of the request's parsed JSON; fields of other names are passed over."""
        if not isinstance(body, Mapping):
            raise ValueError("the body must be a JSON object")
        given = {name: body[name] for name in _FIELDS if name in body}
        return cls(**{"action": None, "program": None, **given})


_FIELDS: Final = tuple(field.name for field in fields(KvCommand))
