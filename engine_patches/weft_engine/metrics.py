"""Series on the engine's `/metrics`, from the states that the scheduler sends.

They are plain prometheus_client metrics in the API server's process, in the registry behind vLLM's
`/metrics`, so they also work in multiprocess mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

# Key of the state -> name and help text of the series.
GAUGES: Final = {
    "running": ("weft_engine_running", "Sequences in the batch"),
    "kv_usage": ("weft_engine_kv_usage_ratio", "Fraction of the KV cache in use"),
    "held_back": ("weft_engine_deferred", "Waiting sequences that are deferred for memory"),
}
TOTALS: Final = {
    "displacements": (
        "weft_engine_displacements",
        "Running sequences preempted for better-ranked ones",
    ),
    "recomputed_tokens": (
        "weft_engine_recomputed_tokens",
        "Tokens recomputed after a preemption",
    ),
    "promotions": ("weft_engine_promotions", "Starving calls promoted to the first queue"),
    "demotions": ("weft_engine_demotions", "Calls demoted after their quantum"),
}


class EngineMetrics:
    """The series of all engine cores behind one API server. The label `engine` is their number from
    0.

    Create one per registry: prometheus_client refuses duplicate names.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(
                name, text, ["engine", *labels], registry=registry, multiprocess_mode="mostrecent"
            )

        self._gauges = {key: gauge(*names) for key, names in GAUGES.items()}
        self._totals = {
            key: Counter(*names, ["engine"], registry=registry) for key, names in TOTALS.items()
        }
        self._waiting = gauge("weft_engine_waiting", "Sequences waiting in each queue", "queue")
        self._policy = gauge("weft_engine_policy", "1 for the active order", "policy")
        self._blocks = gauge("weft_engine_kv_blocks", "KV blocks by tag", "tag")
        self._parts = gauge(
            "weft_engine_part", "Internal counts by part of the engine", "part", "count"
        )
        # The last value of each total, and every label set that a series has had.
        self._seen: dict[tuple[int, str], float] = {}
        self._labels: dict[tuple[int, Gauge], set[tuple[str, ...]]] = {}

    def take(self, engine: int, state: Mapping[str, Any]) -> None:
        """Update the series from an engine's state, as in `GET /weft/state`."""
        for key, gauge in self._gauges.items():
            gauge.labels(engine).set(state[key])
        for key, counter in self._totals.items():
            # The state holds totals; a counter needs their increments.
            counter.labels(engine).inc(state[key] - self._seen.get((engine, key), 0))
            self._seen[engine, key] = state[key]
        kv = state["kv"] or {}
        self._show(engine, self._waiting, {(q,): n for q, n in state["waiting_by_queue"].items()})
        self._show(engine, self._policy, {(state["policy"],): 1})
        self._show(engine, self._blocks, {(t,): n for t, n in kv.get("blocks_by_tag", {}).items()})
        # Nested counts have separate series, or one value per tenant.
        parts: dict[tuple[str, ...], float] = {
            (part, name): value
            for part in ("kv", "swap")
            for name, value in (state[part] or {}).items()
            if not isinstance(value, Mapping)
        }
        self._show(engine, self._parts, parts)

    def _show(self, engine: int, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge for these labels, and to 0 for labels that it had before."""
        known = self._labels.setdefault((engine, gauge), set())
        known.update(values)
        for labels in known:
            gauge.labels(engine, *labels).set(values.get(labels, 0))
