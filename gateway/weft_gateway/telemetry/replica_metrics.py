"""Metrics of the predicted work and speed of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

_US: Final = 1_000_000


class ReplicaMetrics:
    """See docs/guides/unequal-replicas.md."""

    def __init__(self, r: CollectorRegistry) -> None:
        known = "absent while the replica's costs are unknown or unused"
        self.work = Gauge(
            "weft_replica_work_seconds",
            f"Predicted cost of the open calls, all gateways; {known}",
            ("replica",),
            registry=r,
        )
        self.token = Gauge(
            "weft_replica_token_seconds",
            "Predicted seconds per uncached `prompt` token, and per `answer` token of the usual "
            f"call by itself; {known}",
            ("replica", "token"),
            registry=r,
        )

    def show(self, speeds: Mapping[str, tuple[float, float]], work: Mapping[str, int]) -> None:
        """Set the gauges. speeds: seconds per prompt token and per answer token, of the replicas
        whose costs are known. work: microseconds.
        """
        self.work.clear()
        self.token.clear()
        for name, (prompt_s, answer_s) in speeds.items():
            self.work.labels(name).set(work.get(name, 0) / _US)
            self.token.labels(name, "prompt").set(prompt_s)
            self.token.labels(name, "answer").set(answer_s)
