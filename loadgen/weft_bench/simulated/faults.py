"""Faults on demand. Pure. Each kind of fault has its own random stream."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from weft_bench.workloads.streams import stream

# The header by which a call names its fault.
FAULT_HEADER: Final = "x-simulated-fault"
KINDS: Final = ("crash", "500", "hang", "cut", "slow")
_FIELDS: Final = frozenset({"kind", "share", "seed", "delay_s"})


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that occurs in a share of the calls.

    kind: "slow" delays the answer by `delay_s` engine seconds; "hang" never answers; "cut" closes
    the connection in the middle of the answer; "500" returns an error instead; "crash" ends the
    process at once. share: 0 to 1. seed: selects the calls, counted from the time the fault was
    set; equal seeds select equal calls. Raises ValueError for invalid values.
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
        """Return a fault from parsed JSON. Raises ValueError if it is invalid."""
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
    """The active faults, at most one per kind. met: number of calls that each kind has hit."""

    def __init__(self) -> None:
        self.met = dict.fromkeys(KINDS, 0)
        self._set: dict[str, tuple[Fault, random.Random]] = {}

    def set(self, fault: Fault) -> None:
        """Set a fault and replace one of the same kind. A share of 0 removes it."""
        self._set.pop(fault.kind, None)
        if fault.share:
            self._set[fault.kind] = (fault, stream(fault.seed, f"fault/{fault.kind}"))

    def clear(self) -> None:
        """Remove all faults."""
        self._set.clear()

    def draw(self, named: str = "") -> Fault | None:
        """Return the next call's fault, or None.

        named: the fault that the call names; raises ValueError if it is unknown. If several faults
        apply, the gravest is returned.
        """
        found = [f for f, random_ in self._set.values() if random_.random() < f.share]
        if named:
            found.append(self._set[named][0] if named in self._set else Fault(named))
        if not found:
            return None
        fault = min(found, key=lambda f: KINDS.index(f.kind))
        self.met[fault.kind] += 1
        return fault

    def state(self) -> dict[str, Any]:
        """Return the active faults and the number of calls they have hit."""
        return {"faults": [asdict(f) for f, _ in self._set.values()], "met": dict(self.met)}
