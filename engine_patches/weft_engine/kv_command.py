"""The command of `POST /weft/kv`, shared by the engine and its simulation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

KV_ACTIONS: Final = ("retain", "release", "give_up", "forget", "priority")
# Thirty thousand years: larger values are mistakes.
_LONGEST_S: Final = 1e12


@dataclass(frozen=True, slots=True)
class KvCommand:
    """A command for one program's KV blocks. ValueError, with a message for the client, if invalid.

    ttl_s: seconds to retain, or until the priority expires; 0: a permanent priority. priority:
    tiers to raise or lower. tokens: retain only this many of a context's first tokens; None for
    all.
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
            raise ValueError("program must be a non-empty string")
        seconds = isinstance(self.ttl_s, int | float) and not isinstance(self.ttl_s, bool)
        # A NaN fails both comparisons.
        if not (seconds and 0 <= self.ttl_s <= _LONGEST_S):
            raise ValueError(f"ttl_s must be a number of seconds from 0, got {self.ttl_s!r}")
        if self.action == "retain" and not self.ttl_s:
            raise ValueError("retain needs a ttl_s above 0")
        reach = 0 if self.tokens is None else self.tokens
        for name, value in (("priority", self.priority), ("tokens", reach)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} must be a whole number, got {value!r}")

    @classmethod
    def from_body(cls, body: Any) -> KvCommand:
        """Parse the request's JSON body. Unknown fields are ignored."""
        if not isinstance(body, Mapping):
            raise ValueError("the body must be a JSON object")
        given = {name: body[name] for name in _FIELDS if name in body}
        return cls(**{"action": None, "program": None, **given})


_FIELDS: Final = tuple(field.name for field in fields(KvCommand))
