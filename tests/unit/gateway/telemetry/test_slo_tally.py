"""Counts of units for the report and for the metrics."""

from __future__ import annotations

import math

import pytest
from weft_gateway.model.slo import Granted, Scope, SloClass, Slos
from weft_gateway.policies.lateness import Cause
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.slo_tally import MAX_TENANTS, OTHERS, PERIOD_S, SloTally

REPORT = SloClass("report", Scope.PROGRAM, 90.0, 0.9)
SLOS = Slos({"report": REPORT, "batch": SloClass("batch")}, {}, Granted("batch", frozenset()))


def made(slos: Slos = SLOS) -> tuple[SloTally, Metrics]:
    metrics = Metrics()
    return SloTally(slos, metrics, lambda tenant: 4.0 if tenant == "big" else 1.0), metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_series_of_a_class_begin_with_zero() -> None:
    """A rate over a series that begins with its first unit would not contain this unit."""
    _, metrics = made()
    for outcome in ("met", "late", "unended", "refused"):
        labels = {"class": "report", "outcome": outcome}
        assert value(metrics, "weft_slo_programs_total", **labels) == 0
    assert value(metrics, "weft_slo_goal", **{"class": "report"}) == 0.9
    batch = {"class": "batch", "outcome": "met"}
    assert value(metrics, "weft_slo_programs_total", **batch) is None


def test_metrics_and_report_have_the_same_counts() -> None:
    tally, metrics = made()
    tally.count("report", "a", "met")
    tally.count("report", "b", "late", Cause.WAITING)
    tally.slack("report", 7.0)
    (report,) = tally.report()["classes"]
    assert (report["met"], report["late"], report["causes"]) == (1, 1, {"waiting": 1})
    labels = {"class": "report", "cause": "waiting"}
    assert value(metrics, "weft_slo_late_total", **labels) == 1
    buckets = {"class": "report", "le": "10.0"}
    assert value(metrics, "weft_slo_slack_seconds_bucket", **buckets) == 1


def test_tenants_are_bounded() -> None:
    tally, _ = made()
    for number in range(MAX_TENANTS + 50):
        tally.count("report", f"t{number}", "met")
        tally.served(f"t{number}", 1.0)
    tenants = {one["tenant"]: one for one in tally.report()["tenants"]}
    assert len(tenants) == MAX_TENANTS + 1
    assert (tenants[OTHERS]["met"], tenants[OTHERS]["service_s"]) == (50, 50.0)


def test_service_counts_by_weight() -> None:
    tally, metrics = made()
    assert math.isnan(value(metrics, "weft_slo_jain", of="service") or 0.0)
    tally.served("big", 40.0)
    tally.served("small", 10.0)
    assert value(metrics, "weft_slo_jain", of="service") == 1.0
    assert tally.report()["fairness"]["service"] == 1.0


def test_fairness_of_the_metrics_is_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr("weft_gateway.telemetry.slo_tally.time", lambda: now_s[0])
    tally, metrics = made()

    def attained(a: str, b: str) -> float | None:
        tally.count("report", "a", a, None if a == "met" else Cause.WAITING)
        tally.count("report", "b", b, None if b == "met" else Cause.WAITING)
        return value(metrics, "weft_slo_jain", of="attainment")

    assert attained("met", "late") == 0.5
    now_s[0] += PERIOD_S
    assert attained("met", "met") == pytest.approx(0.9)
    now_s[0] += PERIOD_S
    assert attained("met", "met") == 1.0
    assert tally.report()["fairness"]["attainment"] < 1.0
