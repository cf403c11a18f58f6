"""Finds the metrics and labels of the gateway in PromQL expressions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from weft_engine.wire import CallReport
from weft_gateway.telemetry.metrics import Metrics

_SELECTOR = re.compile(r"(?P<metric>weft_[a-z_]+)(?:\{(?P<labels>[^}]*)\})?")
_GROUP = re.compile(r"\bby \((?P<labels>[^)]*)\)")
_MATCHER = re.compile(r"(\w+)\s*[=!]~?\s*\"([^\"]*)\"")
# Labels that Prometheus adds to every series.
SCRAPED = frozenset({"instance", "job"})


def exposed() -> dict[str, set[str]]:
    """Return the names of the series that the gateway exposes, each with its labels."""
    metrics = Metrics()
    call = metrics.bind("chat", "replica-0")
    call.used(CallReport("c", 1.0, 1.0, 1, 1, 1, 1))
    for part in (call.latency, call.first_byte, metrics.overhead):
        part.observe(1.0)
    for outcome in call.outcomes.values():
        outcome.inc()
    metrics.error("no_replica")
    metrics.task_failures.labels("reap").inc()
    metrics.saved.labels("prefill").inc()
    metrics.dropped.labels("replica-0").inc()
    metrics.sources.labels("cached", "claude-cli").inc()
    metrics.batches.labels("completed").inc()
    metrics.batch_requests.labels("succeeded").inc()
    metrics.show_costs({"replica-0": (1e-4, 1e-2)}, {"replica-0": 1_000_000})
    metrics.slo_programs.labels("report", "met").inc()
    metrics.slo_late.labels("report", "waiting").inc()
    metrics.slo_slack.labels("report").observe(1.0)
    metrics.slo_goal.labels("report").set(0.95)
    metrics.slo_jain.labels("service").set(1.0)
    for gauge in (metrics.in_flight, metrics.healthy):
        gauge.labels("replica-0").set(1)
    series: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            series.setdefault(sample.name, set()).update(sample.labels)
    return series


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each Weft metric in an expression, with its label matchers."""
    for match in _SELECTOR.finditer(expression):
        yield match["metric"], dict(_MATCHER.findall(match["labels"] or ""))


def groupings(expression: str) -> set[str]:
    """Return every label that an expression groups by."""
    return {label.strip() for match in _GROUP.finditer(expression) for label in match[1].split(",")}


def check(expression: str) -> None:
    """Raise AssertionError unless every Weft metric and label in `expression` exists."""
    series = exposed()
    labels = set(SCRAPED)
    for metric, matchers in selectors(expression):
        assert metric in series, f"no metric {metric}: {expression}"
        unknown = set(matchers) - series[metric] - SCRAPED
        assert not unknown, f"{metric} has no labels {unknown}: {expression}"
        labels |= series[metric]
    assert groupings(expression) <= labels, expression
