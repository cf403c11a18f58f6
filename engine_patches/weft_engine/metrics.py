"""Series on the engine's own `/metrics`, from the states that the scheduler sends.

They live in the API server's process, in the registry that vLLM's `/metrics` shows, and are plain
prometheus_client metrics, so that they are shown in its multiprocess mode too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

# No engine has so many queues or counts; a series more for each is all that could go wrong.
_MOST_LABELS: Final = 64
# Shown as a series of their own, or with a value for each tenant.
_NO_PARTS: Final = ("blocks_by_tag.", "pinned_blocks_by_tenant.")

# Key of the state to the series' name and help.
GAUGES: Final = {
    "running": ("weft_engine_running", "Sequences in the batch"),
    "kv_usage": ("weft_engine_kv_usage_ratio", "Share of the KV cache that is in use"),
}
TOTALS: Final = {
    "displacements": ("weft_engine_displacements", "Running sequences that gave way to better"),
    "recomputed_tokens": (
        "weft_engine_recomputed_tokens",
        "Tokens computed again after preemption",
    ),
    "promotions": ("weft_engine_promotions", "Calls promoted to the first queue for starving"),
    "demotions": ("weft_engine_demotions", "Calls demoted, their quantum spent"),
}


class EngineMetrics:
    """The series of all engine cores behind one API server, told apart by `engine`, from 0.

    Make one for a registry: prometheus_client refuses the same names twice.
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
        self._policy = gauge("weft_engine_policy", "1 for the order that is followed", "policy")
        self._blocks = gauge("weft_engine_kv_blocks", "KV blocks by what they hold", "tag")
        self._parts = gauge("weft_engine_part", "Counts of a part of the engine", "part", "count")
        # What was last seen of each total, and every label that a series was ever shown with.
        self._seen: dict[tuple[int, str], float] = {}
        self._labels: dict[tuple[int, Gauge], set[tuple[str, ...]]] = {}

    def take(self, engine: int, state: Mapping[str, Any]) -> None:
        """An engine's state, as `GET /weft/state` shows it. What is missing or no number there is
        passed over."""
        for key, gauge in self._gauges.items():
            value = _number(state.get(key))
            if value is not None:
                gauge.labels(engine).set(value)
        for key, counter in self._totals.items():
            value = _number(state.get(key))
            if value is not None:
                # The engine counts; here is only added what is new.
                counter.labels(engine).inc(max(0.0, value - self._seen.get((engine, key), 0.0)))
                self._seen[engine, key] = value
        queues = dict(_leaves(state.get("waiting_by_queue")))
        self._show(engine, self._waiting, {(queue,): n for queue, n in queues.items()})
        self._show(engine, self._policy, {(str(state.get("policy", "")),): 1.0})
        kv = state.get("kv")
        tags = dict(_leaves(kv.get("blocks_by_tag"))) if isinstance(kv, Mapping) else {}
        self._show(engine, self._blocks, {(tag,): n for tag, n in tags.items()})
        parts: dict[tuple[str, ...], float] = {
            (part, name): value
            for part in ("kv", "swap")
            for name, value in _leaves(state.get(part))
            if not name.startswith(_NO_PARTS)
        }
        self._show(engine, self._parts, parts)

    def _show(self, engine: int, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge for these labels, and to 0 for those that it was shown with before."""
        known = self._labels.setdefault((engine, gauge), set())
        known.update(list(values)[: _MOST_LABELS - len(known)])
        for labels in known:
            gauge.labels(engine, *labels).set(values.get(labels, 0.0))


def _number(value: Any) -> float | None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if real else None


def _leaves(part: Any, above: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of an object, those of objects inside with their path."""
    if not isinstance(part, Mapping):
        return
    for name, value in part.items():
        number = _number(value)
        if number is not None:
            yield f"{above}{name}", number
        else:
            yield from _leaves(value, f"{above}{name}.")
