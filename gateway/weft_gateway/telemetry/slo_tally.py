"""Counts of units with targets, for the report and for the metrics."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from time import time
from typing import Any, Final

from weft_gateway.model.slo import Slos
from weft_gateway.policies.lateness import Cause
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.slo_report import OUTCOMES, Units, jain, per_weight, slo_report

# Number of tenants with their rows. Further tenants share one row per class.
MAX_TENANTS: Final = 1024
OTHERS: Final = "others"
# Fairness on /metrics is that of the last one to two such periods.
PERIOD_S: Final = 300.0

# By tenant: units that met their target, all units, seconds of service per weight.
_Totals = dict[str, tuple[int, int, float]]


class SloTally:
    """Counts for this gateway, since it started. weight: of a tenant, for its share of service.
    name: of a tenant, for reports.
    """

    def __init__(
        self,
        slos: Slos,
        metrics: Metrics,
        weight: Callable[[str], float],
        name: Callable[[str], str] = str,
    ) -> None:
        self._metrics = metrics
        self._weight = weight
        self._name = name
        self._since_s = time()
        self._classes = slos.classes
        self._rows: dict[tuple[str, str], Units] = {}
        self._service_s: dict[str, float] = {}
        self._tenants: set[str] = set()
        self._older: _Totals = {}
        self._newer: _Totals = {}
        self._rotated_s = self._since_s
        for one in slos.classes.values():
            if one.deadline_s:
                metrics.slo_goal.labels(one.name).set(one.attainment)
                # A counter that appears with its first unit would hide this unit from rate().
                for outcome in OUTCOMES:
                    metrics.slo_programs.labels(one.name, outcome)
                for cause in Cause:
                    metrics.slo_late.labels(one.name, cause)
        metrics.slo_jain.labels("attainment").set_function(lambda: self._recent_jain(0))
        metrics.slo_jain.labels("service").set_function(lambda: self._recent_jain(1))

    def count(self, slo: str, tenant: str, outcome: str, cause: Cause | None = None) -> None:
        """Count a unit that has ended. outcome: one of OUTCOMES. cause: of a late unit."""
        row = self._row(slo, tenant)
        row.outcomes[outcome] += 1
        self._metrics.slo_programs.labels(slo, outcome).inc()
        if cause is not None:
            row.causes[cause] = row.causes.get(cause, 0) + 1
            self._metrics.slo_late.labels(slo, cause).inc()

    def slack(self, slo: str, slack_s: float) -> None:
        """Count a call's budget minus its predicted time."""
        self._metrics.slo_slack.labels(slo).observe(slack_s)

    def served(self, tenant: str, seconds: float) -> None:
        """Add the engine time of a call."""
        known = self._service_s
        if tenant not in known and len(known) >= MAX_TENANTS:
            tenant = OTHERS
        known[tenant] = known.get(tenant, 0.0) + seconds

    def report(self) -> dict[str, Any]:
        """Return the report: all counts by the names of tenants, together for keys that had the
        same name.
        """
        rows: dict[tuple[str, str], Units] = {}
        for (slo, tenant), units in self._rows.items():
            rows.setdefault((slo, self._name(tenant)), Units()).add(units)
        service: dict[str, tuple[float, float]] = {}
        for tenant, seconds in self._service_s.items():
            name = self._name(tenant)
            service[name] = self._weight_of(tenant), seconds + service.get(name, (0.0, 0.0))[1]
        return slo_report(self._since_s, self._classes, rows, service)

    def _row(self, slo: str, tenant: str) -> Units:
        row = self._rows.get((slo, tenant))
        if row is None:
            if tenant not in self._tenants and len(self._tenants) >= MAX_TENANTS:
                tenant = OTHERS
            self._tenants.add(tenant)
            row = self._rows.setdefault((slo, tenant), Units())
        return row

    def _weight_of(self, tenant: str) -> float:
        return 1.0 if tenant == OTHERS else self._weight(tenant)

    def _recent_jain(self, which: int) -> float:
        """Return Jain's index of the recent attainment (0) or weighted service (1) of the tenants,
        NaN without any.
        """
        now_s = time()
        if now_s - self._rotated_s >= PERIOD_S:
            self._older, self._newer, self._rotated_s = self._newer, self._totals(), now_s
        attainment, service = [], []
        for tenant, (met, units, seconds) in self._totals().items():
            before = self._older.get(tenant, (0, 0, 0.0))
            if units > before[1]:
                attainment.append((met - before[0]) / (units - before[1]))
            if seconds > before[2]:
                service.append(seconds - before[2])
        found = jain(service if which else attainment)
        return nan if found is None else found

    def _totals(self) -> _Totals:
        totals: _Totals = {
            tenant: (0, 0, per_weight(seconds, self._weight_of(tenant)))
            for tenant, seconds in self._service_s.items()
        }
        for (_, tenant), units in self._rows.items():
            met, all_units, seconds = totals.get(tenant, (0, 0, 0.0))
            totals[tenant] = met + units.outcomes["met"], all_units + units.total, seconds
        return totals
