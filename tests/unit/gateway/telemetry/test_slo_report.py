"""The SLO report: counts of tenants add up, and ratios are computed from the sums."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model.slo import Scope, SloClass
from weft_gateway.telemetry.slo_report import Units, jain, slo_report

CLASSES = {"report": SloClass("report", Scope.PROGRAM, 90.0, 0.9)}


def units(met: int, late: int = 0, unended: int = 0, refused: int = 0) -> Units:
    found = Units()
    found.outcomes |= {"met": met, "late": late, "unended": unended, "refused": refused}
    found.causes = {"waiting": late} if late else {}
    return found


def gateway(rows: dict[str, Units], service: dict[str, float] | None = None) -> dict[str, Any]:
    """A gateway's report on the class `report`. rows, service: by tenant."""
    seconds = {tenant: (2.0, each) for tenant, each in (service or {}).items()}
    by_key = {("report", tenant): row for tenant, row in rows.items()}
    return slo_report(100.0, CLASSES, by_key, seconds)


def test_ratios_are_computed_from_sums() -> None:
    rows = {"a": units(99, late=1), "b": units(0, late=1)}
    found = gateway(rows, {"a": 20.0, "b": 5.0})
    (report,) = found["classes"]
    assert (report["units"], report["met"], report["late"]) == (101, 99, 2)
    assert report["attainment"] == pytest.approx(99 / 101)
    assert (report["goal"], report["goal_met"]) == (0.9, True)
    assert report["causes"] == {"waiting": 2}
    a, b = found["tenants"]
    assert (a["attainment"], a["service_s"], a["share"]) == (0.99, 20.0, 0.8)
    assert (b["attainment"], b["weight"]) == (0.0, 2.0)
    assert found["fairness"]["attainment"] == pytest.approx(0.5)
    assert found["fairness"]["service"] == pytest.approx((10 + 2.5) ** 2 / (2 * (100 + 6.25)))


@given(st.lists(st.tuples(*[st.integers(0, 50)] * 4), min_size=1, max_size=5))
def test_only_met_units_count_as_met_and_late_ones_have_causes(counts) -> None:
    rows = {str(number): units(*each) for number, each in enumerate(counts)}
    (report,) = gateway(rows)["classes"]
    met, total = sum(each[0] for each in counts), sum(map(sum, counts))
    assert report["attainment"] == (met / total if total else None)
    assert sum(report["causes"].values()) == report["late"]


def test_attainment_is_compared_with_the_goal() -> None:
    for met, goal_met in ((9, True), (8, False)):
        (report,) = gateway({"a": units(met, refused=10 - met)})["classes"]
        assert report["goal_met"] is goal_met
    (report,) = gateway({})["classes"]
    assert (report["attainment"], report["goal_met"]) == (None, None)


def test_class_without_a_file_has_no_goal() -> None:
    (report,) = slo_report(1.0, {}, {("", "a"): units(1)}, {})["classes"]
    assert (report["class"], report["scope"], report["goal_met"]) == ("", None, None)


@pytest.mark.parametrize(
    ("shares", "index"),
    [
        ([], None),
        ([0.0, 0.0], 1.0),
        ([0.5], 1.0),
        ([1.0, 1.0], 1.0),
        ([1.0, 0.0, 0.0], 1 / 3),
        ([1e200, 1e200], 1.0),
        ([1e-200, 1e-200], 1.0),
    ],
)
def test_jain(shares: list[float], index: float | None) -> None:
    assert jain(shares) == (None if index is None else pytest.approx(index))


@pytest.mark.parametrize("weight", [0.0, 1e-320, 1e-9])
def test_fairness_with_any_weight(weight: float) -> None:
    service = {"a": (weight, 10.0), "b": (1.0, 10.0)}
    report = slo_report(100.0, CLASSES, {}, service)
    assert report["fairness"]["service"] == pytest.approx(0.5, abs=1e-5)
