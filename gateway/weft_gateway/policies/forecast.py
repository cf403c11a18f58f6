"""Forecasts of calls: how many follow, how long their answers get, what they cost. Pure.

Everything is learned by kind, a text; the kind "" stands for all programs, and is used for kinds
with few samples.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

ALL: Final = ""
# A kind with fewer samples uses those of all programs.
MIN_SAMPLES: Final = 8
_WINDOW: Final = 64
_MAX_KINDS: Final = 1024
_MAX_CALLS: Final = 512
# The weight of a sample after the next one.
_FADE: Final = 0.99


class PathLengths:
    """The number of calls on a unit's path, by kind: the product-limit estimator (Kaplan and Meier,
    1958). A unit that still runs counts at the calls that it has passed, which keeps long ones in
    the estimate.
    """

    def __init__(self) -> None:
        # Per kind and position: units that went on after this call, and units that ended with it.
        self._counts: OrderedDict[str, list[list[int]]] = OrderedDict()

    def went_on(self, kind: str, position: int) -> None:
        """Count a unit with another call after the one at `position`, from 1."""
        self._count(kind, position, 0)

    def ended(self, kind: str, position: int) -> None:
        """Count a unit whose last call is at `position`."""
        self._count(kind, position, 1)

    def remaining(self, kind: str, position: int) -> int:
        """Return the median number of calls after `position`. 0 if no unit got so far."""
        survival, calls = 1.0, 0
        for at in range(position, _MAX_CALLS):
            went_on, ended = self._at(kind, at)
            if not went_on:
                return calls
            survival *= went_on / (went_on + ended)
            if survival <= 0.5:
                return calls
            calls += 1
        return calls

    def _at(self, kind: str, position: int) -> list[int]:
        for name in (kind, ALL):
            counts = self._counts.get(name, [])
            if position < len(counts) and (sum(counts[position]) >= MIN_SAMPLES or name == ALL):
                return counts[position]
        return [0, 0]

    def _count(self, kind: str, position: int, column: int) -> None:
        if position >= _MAX_CALLS:
            return
        for name in {kind, ALL}:
            counts = self._counts.setdefault(name, [])
            counts.extend([0, 0] for _ in range(position + 1 - len(counts)))
            counts[position][column] += 1
            self._counts.move_to_end(name)
        self._counts.move_to_end(ALL)
        if len(self._counts) > _MAX_KINDS:
            self._counts.popitem(last=False)


@dataclass(slots=True)
class _Speed:
    """Sums for a fit of service = prefill x uncached prompt tokens + decode x output tokens."""

    pp: float = 0.0
    po: float = 0.0
    oo: float = 0.0
    ps: float = 0.0
    os: float = 0.0

    def add(self, prompt: int, output: int, service_s: float) -> None:
        self.pp = self.pp * _FADE + prompt * prompt
        self.po = self.po * _FADE + prompt * output
        self.oo = self.oo * _FADE + output * output
        self.ps = self.ps * _FADE + prompt * service_s
        self.os = self.os * _FADE + output * service_s

    def fit(self) -> tuple[float, float]:
        """Return seconds per prompt token and per output token, neither negative."""
        determinant = self.pp * self.oo - self.po * self.po
        if determinant > 1e-9 * self.pp * self.oo:
            prefill = (self.ps * self.oo - self.os * self.po) / determinant
            decode = (self.os * self.pp - self.ps * self.po) / determinant
            if prefill >= 0 and decode >= 0:
                return prefill, decode
            if prefill < 0 < self.oo:
                return 0.0, self.os / self.oo
        if self.oo:
            return 0.0, self.os / self.oo
        return (self.ps / self.pp if self.pp else 0.0), 0.0


@dataclass(slots=True)
class _Recent:
    """The last calls of a kind: output tokens, the uncached share of the prompt, service."""

    outputs: deque[int] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    uncached: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    service_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))


@dataclass(frozen=True, slots=True)
class Predicted:
    """A call's prediction. cost_s: prefill_s plus answer_s, mean over replicas (equation 6); 0 if
    no engine has reported. later_s: cost of each later call.
    """

    cost_s: float = 0.0
    prefill_s: float = 0.0
    answer_s: float = 0.0
    later_s: float = 0.0


class Costs:
    """The costs of calls, learned from the engines' reports."""

    def __init__(self) -> None:
        self._speeds: OrderedDict[tuple[str, str], _Speed] = OrderedDict()
        self._kinds: OrderedDict[str, _Recent] = OrderedDict()

    def learn(
        self, model: str, replica: str, kind: str, prompt: int, cached: int, output: int,
        service_s: float,
    ) -> None:  # fmt: skip
        """Learn from an answered call: tokens, and seconds of engine time."""
        uncached = max(prompt - cached, 0)
        self._speeds.setdefault((model, replica), _Speed()).add(uncached, output, service_s)
        if len(self._speeds) > _MAX_KINDS:
            self._speeds.popitem(last=False)
        for name in {kind, ALL}:
            recent = self._kinds.setdefault(name, _Recent())
            recent.outputs.append(output)
            recent.uncached.append(uncached / prompt if prompt else 1.0)
            recent.service_s.append(service_s)
            self._kinds.move_to_end(name)
        self._kinds.move_to_end(ALL)
        if len(self._kinds) > _MAX_KINDS:
            self._kinds.popitem(last=False)

    def predict(self, model: str, kind: str, prompt: int, max_tokens: int | None) -> Predicted:
        """Predict a call (equations 2 and 6). max_tokens: the request's limit of its answer."""
        fits = [speed.fit() for (name, _), speed in self._speeds.items() if name == model]
        recent = self._kinds.get(kind)
        if recent is None or len(recent.outputs) < MIN_SAMPLES:
            recent = self._kinds.get(ALL)
        if not fits or recent is None:
            return Predicted()
        output = median(recent.outputs)
        if max_tokens is not None:
            output = min(output, max_tokens)
        prefill_s = sum(fit[0] for fit in fits) / len(fits) * prompt * median(recent.uncached)
        answer_s = sum(fit[1] for fit in fits) / len(fits) * output
        return Predicted(prefill_s + answer_s, prefill_s, answer_s, median(recent.service_s))
