"""Sequences whose KV is loaded from host memory, and the cost of evicted contexts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

# Earlier calls count by a tenth less with each call.
_MEMORY: Final = 0.9


class ReloadCost:
    """Learned from the calls of programs that had called before.

    share: the time to load or compute what such calls do not find in the cache, over the time to
    compute all of it. 1 without host memory. loading: the time to load a token over the time to
    compute it; 0 before the first load.
    """

    def __init__(self) -> None:
        self.share = 1.0
        self.loading = 0.0
        self._missing = 0.0
        self._cost = 0.0

    def note(self, computed: int, loaded: int, load_s: float, token_s: float) -> None:
        """Learn from a call. computed, loaded: the tokens of its prompt that were not in the cache.
        load_s: duration of the load, seconds. token_s: seconds in which a token is computed."""
        load_cost = min(float(loaded), load_s / token_s) if token_s else 0.0
        if loaded:
            self.loading += (load_cost / loaded - self.loading) * (1 - _MEMORY)
        self._missing = _MEMORY * self._missing + computed + loaded
        self._cost = _MEMORY * self._cost + computed + load_cost
        if self._missing:
            self.share = self._cost / self._missing


class Queues(Protocol):
    """An engine's requests."""

    def loading(self) -> Iterable[Any]:
        """Requests whose KV is being loaded."""

    def missing_tokens_of(self, sequence: str) -> tuple[int, int]:
        """The prompt tokens that a sequence which starts had to compute, and those it loaded."""


class CacheRule(Protocol):
    """The order's rule for filling the cache: see Residents."""

    def started(self, sequence: str) -> None:
        """A waiting sequence was admitted."""

    def returned(self, sequence: str, computed: int, loaded: int, load_s: float) -> None:
        """A sequence runs for the first time. Arguments as for ReloadCost."""


class Loads:
    """Reports admissions to the cache rule: a sequence takes its blocks and its place when its load
    begins, not when it runs. began: when each load began."""

    def __init__(self, queues: Queues) -> None:
        self.began: dict[str, float] = {}
        self._queues = queues

    def note(self, rule: CacheRule | None, now: float) -> None:
        """A step was scheduled."""
        for request in self._queues.loading():
            if request.request_id not in self.began:
                self.began[request.request_id] = now
                if rule is not None:
                    rule.started(request.request_id)

    def started(self, sequence: str, rule: CacheRule | None, now: float) -> None:
        """A sequence runs."""
        began = self.began.pop(sequence, None)
        if rule is None:
            return
        if began is None:
            rule.started(sequence)
        computed, loaded = self._queues.missing_tokens_of(sequence)
        rule.returned(sequence, computed, loaded, 0.0 if began is None else now - began)
