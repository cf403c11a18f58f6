"""Forecasts of calls: how many follow, how long their answers get, what they cost. Pure.

Everything is learned by kind, a text; the kind "" stands for all programs, and is used for kinds
with few samples.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from weft_gateway.model.record import record
from weft_gateway.policies.recent import ALL, MIN_SAMPLES, P90, RecentCalls, Sample

_MAX_KINDS: Final = 1024
MAX_CALLS: Final = 512
# The weight of a sample after the next one.
_FADE: Final = 0.99
# A forecast of a path is computed again when the kind has this many times its samples.
_GROWTH: Final = 17 / 16


class _Path:
    """The units of a kind. counts: per position, units that went on after this
    call, and units that ended with it. events: their sum. known: forecasts by position, each with
    the events of the kind and of all programs at its time.
    """

    __slots__ = ("counts", "events", "known")

    def __init__(self) -> None:
        self.counts: list[list[int]] = []
        self.events = 0
        self.known: dict[int, tuple[int, int, int, int]] = {}


class PathLengths:
    """The number of calls on a unit's path, by kind: the product-limit estimator (Kaplan and Meier,
    1958). A unit that still runs counts at the calls that it has passed, which keeps long ones in
    the estimate.
    """

    def __init__(self) -> None:
        self._paths: OrderedDict[str, _Path] = OrderedDict()

    def went_on(self, kind: str, position: int) -> None:
        """Count a unit with another call after the one at `position`, from 1."""
        self._count(kind, position, 0)

    def ended(self, kind: str, position: int) -> None:
        """Count a unit whose last call is at `position`."""
        self._count(kind, position, 1)

    def remaining(self, kind: str, position: int) -> int:
        """Return the median number of calls after `position`. 0 if no unit got so far."""
        return self.quantiles(kind, position)[0]

    def quantiles(self, kind: str, position: int) -> tuple[int, int]:
        """Return the median and the 90th percentile of the number of calls after `position`."""
        every = self._paths.get(ALL)
        if every is None:
            return 0, 0
        path = self._paths.get(kind, every)
        known = path.known.get(position)
        if known is None or path.events > known[2] * _GROWTH or every.events > known[3] * _GROWTH:
            median, p90 = _residual(path, every, position)
            known = path.known[position] = median, p90, path.events, every.events
        return known[0], known[1]

    def _count(self, kind: str, position: int, column: int) -> None:
        if position >= MAX_CALLS:
            return
        for name in {kind, ALL}:
            path = self._paths.get(name)
            if path is None:
                path = self._paths[name] = _Path()
            path.counts.extend([0, 0] for _ in range(position + 1 - len(path.counts)))
            path.counts[position][column] += 1
            path.events += 1
            self._paths.move_to_end(name)
        self._paths.move_to_end(ALL)
        if len(self._paths) > _MAX_KINDS:
            self._paths.popitem(last=False)


def _residual(path: _Path, every: _Path, position: int) -> tuple[int, int]:
    """Return the median and the 90th percentile of the calls after `position`. every: used at
    positions that few units of the kind have reached.
    """
    survival, calls, median = 1.0, 0, -1
    for at in range(position, MAX_CALLS):
        went_on = ended = 0
        for counts in (path.counts, every.counts):
            if at < len(counts):
                went_on, ended = counts[at]
                if went_on + ended >= MIN_SAMPLES:
                    break
        survival *= went_on / (went_on + ended) if went_on else 0.0
        if median < 0 and survival <= 0.5:
            median = calls
        if survival <= 1 - P90:
            break
        calls += 1
    return (calls if median < 0 else median), calls


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


@record
class Predicted:
    """A call's prediction. cost_s: prefill_s plus answer_s, mean over replicas (equation 6), times
    the median error of such predictions; 0 if no engine has reported. later_s: cost of each later
    call. p90_s: 90th percentile of the cost, 0 if unknown. fit_s: the cost without the errors.
    tokens, tokens_p90: of the answer.
    """

    cost_s: float = 0.0
    prefill_s: float = 0.0
    answer_s: float = 0.0
    later_s: float = 0.0
    p90_s: float = 0.0
    fit_s: float = 0.0
    tokens: float = 0.0
    tokens_p90: float = 0.0


class Costs:
    """The costs of calls, learned from the engines' reports."""

    def __init__(self) -> None:
        self._speeds: OrderedDict[tuple[str, str], _Speed] = OrderedDict()
        self._calls = RecentCalls()

    def learn(
        self, model: str, replica: str, kind: str, prompt: int, cached: int, output: int,
        service_s: float, fit_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Learn from an answered call: tokens, and seconds of engine time. fit_s: as predicted, 0
        without a prediction.
        """
        uncached = max(prompt - cached, 0)
        self._speeds.setdefault((model, replica), _Speed()).add(uncached, output, service_s)
        if len(self._speeds) > _MAX_KINDS:
            self._speeds.popitem(last=False)
        share = uncached / prompt if prompt else 1.0
        error = service_s / fit_s if fit_s else 0.0
        self._calls.add(kind, Sample(output, share, service_s, error))

    def predict(self, model: str, kind: str, prompt: int, max_tokens: int | None) -> Predicted:
        """Predict a call (equations 2 and 6). max_tokens: the request's limit of its answer."""
        fits = [speed.fit() for (name, _), speed in self._speeds.items() if name == model]
        known = self._calls.typical(kind)
        if not fits or known is None:
            return Predicted()
        tokens, most = known.output, known.output_p90
        if max_tokens is not None:
            tokens, most = min(tokens, max_tokens), min(most, max_tokens)
        prefill_s = sum([fit[0] for fit in fits]) / len(fits) * prompt * known.uncached
        answer_s = sum([fit[1] for fit in fits]) / len(fits) * tokens
        fit_s, error = prefill_s + answer_s, known.error
        return Predicted(
            fit_s * error,
            prefill_s * error,
            answer_s * error,
            known.service_s,
            fit_s * known.error_p90,
            fit_s,
            tokens,
            most,
        )

    def service_s(self, kind: str) -> float:
        """Return the median service of a kind's calls, 0 if unknown."""
        known = self._calls.typical(kind)
        return 0.0 if known is None else known.service_s
