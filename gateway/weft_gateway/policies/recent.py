"""Recent calls by kind, and their quantiles. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

# Stands for all calls.
ALL: Final = ""
# A kind with fewer samples uses those of a wider kind.
MIN_SAMPLES: Final = 8
P90: Final = 0.9
_WINDOW: Final = 64
_MAX_KINDS: Final = 1024
# Quantiles are computed again when this part of the samples is new.
_STALE: Final = 8


class Sample(NamedTuple):
    """One answered call. uncached: share of its prompt tokens. error: its service divided by the
    predicted one, 0 without a prediction.
    """

    prompt: int
    output: int
    uncached: float
    service_s: float
    error: float


class Typical(NamedTuple):
    """Quantiles of the recent calls of a kind, medians unless named otherwise. error: 1, and
    error_p90: 0, if too few calls had a prediction.
    """

    prompt: float
    output: float
    uncached: float
    service_s: float
    error: float
    output_p90: float
    error_p90: float


@lru_cache(maxsize=4096)
def levels(kind: str) -> tuple[str, ...]:
    """Return a kind and the wider ones that stand for it while it has few samples. A kind is a path
    of names, one per line: a model, a kind of programs, a stage.
    """
    parts = kind.split("\n") if kind else []
    return (*["\n".join(parts[:length]) for length in range(len(parts), 0, -1)], ALL)


class Recent:
    """The last calls of one kind. new: samples since the quantiles were computed."""

    __slots__ = ("_typical", "new", "samples")

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=_WINDOW)
        self._typical: Typical | None = None
        self.new = 0

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, sample: Sample) -> None:
        """Add a call."""
        self.samples.append(sample)
        self.new += 1

    def typical(self) -> Typical:
        """Return the quantiles. At most one eighth of the samples is missing in them. Call it only
        if there are samples.
        """
        if self._typical is None or self.new * _STALE >= len(self.samples):
            self.new = 0
            prompts, outputs, uncached, services, errors = map(
                sorted, zip(*self.samples, strict=True)
            )
            predicted = [error for error in errors if error]
            enough = len(predicted) >= MIN_SAMPLES
            self._typical = Typical(
                _median(prompts),
                _median(outputs),
                _median(uncached),
                _median(services),
                _median(predicted) if enough else 1.0,
                upper(outputs, P90),
                upper(predicted, P90) if enough else 0.0,
            )
        return self._typical


class RecentCalls:
    """The last calls of each kind and of its wider kinds."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, Recent] = OrderedDict()

    def add(self, kind: str, sample: Sample) -> None:
        """Add a call of a kind."""
        kinds = self._kinds
        for name in levels(kind):
            recent = kinds.get(name)
            if recent is None:
                recent = kinds[name] = Recent()
            else:
                kinds.move_to_end(name)
            # Without a call of `add`: each sample goes to four kinds.
            recent.samples.append(sample)
            recent.new += 1
        while len(kinds) > _MAX_KINDS:
            kinds.popitem(last=False)

    def knows(self, kind: str) -> bool:
        """Whether the quantiles of a kind are its own: it has enough samples, or no other has."""
        own, every = len(self._kinds.get(kind, ())), len(self._kinds.get(ALL, ()))
        return own >= MIN_SAMPLES or 0 < own == every

    def typical(self, kind: str) -> Typical | None:
        """Return the quantiles of the narrowest kind with enough samples, else of all calls. None
        before the first call.
        """
        recent = None
        for name in levels(kind):
            recent = self._kinds.get(name)
            if recent is not None and len(recent) >= MIN_SAMPLES:
                break
        return None if recent is None else recent.typical()


def upper(ordered: Sequence[float], share: float) -> float:
    """Return the least sample that the next one does not exceed with this probability: the order
    statistic of conformal prediction. The greatest one if there are too few samples.
    """
    count = len(ordered)
    return ordered[min(math.ceil(share * (count + 1)), count) - 1]


def _median(ordered: Sequence[float]) -> float:
    count = len(ordered)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
