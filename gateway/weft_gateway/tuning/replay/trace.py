"""The input and output of a replay, and the candidates. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Final

import msgspec

from weft_gateway.tuning.shapes import CallShape

ALPHAS: Final = tuple(step / 10 for step in range(11))


class Values(msgspec.Struct, frozen=True):
    """The tuned values. alpha: of the balancer `work`; None: not tuned."""

    alpha: float | None = None

    def known(self) -> dict[str, float]:
        """All that are tuned."""
        return {} if self.alpha is None else {"alpha": self.alpha}


def candidates(current: Values) -> list[Values]:
    """Return the current values, and those with other alphas (HexGen-Flow, equation 10)."""
    now = current.alpha
    if now is None:
        return [current]
    return [current, *(Values(alpha) for alpha in ALPHAS if abs(alpha - now) > 1e-9)]


class Objective(StrEnum):
    """The minimised figure, a P95 over units: the latency (HexGen-Flow, equation 10), the slowdown,
    or the latency over the deadline, which is the least scale of the deadlines that 95% attain.
    """

    LATENCY = "latency"
    SLOWDOWN = "slowdown"
    DEADLINE = "deadline"


class ReplicaShape(msgspec.Struct, frozen=True):
    """An engine. steps: as in StepCosts, seconds, without `together`. slots, step_tokens,
    kv_tokens: its limits. models: digests of the models that it serves.
    """

    name: str
    steps: tuple[float, float, float, float, float]
    slots: int
    step_tokens: int
    kv_tokens: int
    models: tuple[int, ...]

    def flaw(self) -> str:
        """Return the field with an impossible value, "" if all are possible."""
        if any(not isfinite(one) or one < 0 for one in self.steps) or not sum(self.steps[:2]) > 0:
            return "steps"
        limits = ("slots", "step_tokens", "kv_tokens")
        return next((name for name in limits if getattr(self, name) <= 0), "")


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replay to run. counted: the units that the objective is about; the calls of others are load
    beside them. order, options: of the engines. seed: of the router, the same for all candidates.
    """

    calls: Sequence[CallShape]
    counted: Sequence[int]
    replicas: Sequence[ReplicaShape]
    balancer: str
    threshold_tokens: int
    order: str
    options: dict[str, float | int | bool]
    current: Values
    objective: Objective
    seed: int = 0

    def check(self) -> None:
        """Raise ValueError if the trace cannot be replayed."""
        if not self.replicas or not self.calls or not self.counted:
            raise ValueError("a trace needs replicas, calls and counted units")
        checked: list[CallShape | ReplicaShape] = [*self.calls, *self.replicas]
        for one in checked:
            flaw = one.flaw()
            if flaw:
                raise ValueError(f"{type(one).__name__}.{flaw} has an impossible value")
        if not {call.unit for call in self.calls} >= set(self.counted):
            raise ValueError("a counted unit has no calls")


class Scored(msgspec.Struct, frozen=True):
    """A candidate's figure. part: share of the trace that was replayed with it."""

    values: Values
    score: float
    part: float


class Found(msgspec.Struct, frozen=True):
    """The result. best: of the candidates that were replayed to the end, at `score`. now: the score
    of the current values. cpu_s: processor time of the process. calls: replayed, of all candidates.
    """

    best: Values
    score: float
    now: float
    tried: Sequence[Scored]
    cpu_s: float = 0.0
    calls: int = 0

    @property
    def gain(self) -> float:
        """The predicted improvement, as a fraction of the current score."""
        return 1 - self.score / self.now if self.now > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a replay's process. calls: of a trace; only the latest ones are replayed."""

    memory_bytes: int = 1 << 29
    cpu_s: int = 20
    within_s: float = 100.0
    calls: int = 2000
