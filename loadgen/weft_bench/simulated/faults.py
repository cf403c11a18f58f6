"""Faults on demand: which calls go wrong, and how. Pure; each kind has a random stream."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from weft_bench.workloads.streams import stream

# What a call that names its own fault carries.
FAULT_HEADER: Final = "x-simulated-fault"
KINDS: Final = ("crash", "500", "hang", "cut", "slow")
_FIELDS: Final = frozenset({"kind", "share", "seed", "delay_s"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a share of the calls.

    kind: "slow", the answer is held back for `delay_s` seconds of the engine's time; "hang", there
    is never an answer; "cut", the connection is closed in the middle of the answer; "500", an error
    in its place; "crash", the process ends at once. share: 0 to 1. seed: which calls it meets; the
    same seed meets the same ones, counted from when the fault was set. ValueError.
    """

    kind: str
    share: float = 1.0
    seed: int = 0
    delay_s: float = 5.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be from 0 to 1, got {self.share!r}")
        if not 0 <= self.delay_s <= 1e6:
            raise ValueError(f"delay_s must be from 0 to 1e6, got {self.delay_s!r}")

    @classmethod
    def from_mapping(cls, raw: Any) -> Fault:
        """A fault from parsed JSON. ValueError says what is wrong with it."""
        if not isinstance(raw, Mapping) or "kind" not in raw:
            raise ValueError("a fault is an object with a kind")
        if unknown := sorted(set(raw) - _FIELDS):
            raise ValueError(f"unknown: {', '.join(unknown)}")
        for name in ("share", "delay_s", "seed"):
            value = raw.get(name, 0)
            right = int if name == "seed" else int | float
            if isinstance(value, bool) or not isinstance(value, right):
                raise ValueError(f"{name} must be a number, got {value!r}")
        return cls(**{**raw, "kind": str(raw["kind"])})


class Faults:
    """The faults that are set, one of a kind at most. met: how many calls each kind has met."""

    def __init__(self) -> None:
        self.met = dict.fromkeys(KINDS, 0)
        self._set: dict[str, tuple[Fault, random.Random]] = {}

    def set(self, fault: Fault) -> None:
        """From now on; in place of another one of its kind. A share of 0 ends it."""
        self._set.pop(fault.kind, None)
        if fault.share:
            self._set[fault.kind] = (fault, stream(fault.seed, f"fault/{fault.kind}"))

    def clear(self) -> None:
        """No faults from now on."""
        self._set.clear()

    def draw(self, named: str = "") -> Fault | None:
        """What goes wrong with the next call. named: by the call itself, ValueError if unknown.
        The gravest, where several meet."""
        found = [f for f, random_ in self._set.values() if random_.random() < f.share]
        if named:
            found.append(self._set[named][0] if named in self._set else Fault(named))
        if not found:
            return None
        fault = min(found, key=lambda f: KINDS.index(f.kind))
        self.met[fault.kind] += 1
        return fault

    def state(self) -> dict[str, Any]:
        """What is set and what it has met."""
        return {"faults": [asdict(f) for f, _ in self._set.values()], "met": dict(self.met)}
