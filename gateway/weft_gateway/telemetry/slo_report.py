"""The SLO report of a gateway: counts are added first, then ratios are computed. Pure.

Each unit is a program, a turn or a call with a target that has ended. A row has the units of one
class and one tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weft_gateway.model.limits import MIN_WEIGHT
from weft_gateway.model.slo import SloClass

OUTCOMES: Final = ("met", "late", "unended", "refused")


@dataclass(slots=True)
class Units:
    """Counts of units, by outcome. causes: of the late ones."""

    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    causes: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the number of units."""
        return sum(self.outcomes.values())

    @property
    def attainment(self) -> float | None:
        """Return the share of units that met their target, None without units."""
        return self.outcomes["met"] / self.total if self.total else None

    def add(self, other: Units) -> None:
        """Add the counts of others."""
        for name, number in other.outcomes.items():
            self.outcomes[name] += number
        for name, number in other.causes.items():
            self.causes[name] = self.causes.get(name, 0) + number

    def to_json(self, goal: float | None) -> dict[str, Any]:
        """Return the counts and ratios. goal: share of units that should meet their target."""
        attainment = self.attainment
        return {
            "units": self.total,
            **self.outcomes,
            "attainment": attainment,
            "goal": goal,
            "goal_met": None if goal is None or attainment is None else attainment >= goal,
            "causes": dict(sorted(self.causes.items(), key=lambda pair: -pair[1])),
        }


def slo_report(
    since_s: float,
    classes: Mapping[str, SloClass],
    rows: Mapping[tuple[str, str], Units],
    service: Mapping[str, tuple[float, float]],
) -> dict[str, Any]:
    """Return the report of a gateway in the API's format. since_s: Unix time. classes: of the SLO
    file. rows: by class and tenant. service: weight and seconds of engine time by tenant.
    """
    goals = {name: one.attainment for name, one in classes.items() if one.deadline_s}
    by_class: dict[str, Units] = {name: Units() for name in goals}
    by_tenant: dict[str, Units] = {}
    for (slo, tenant), units in rows.items():
        by_class.setdefault(slo, Units()).add(units)
        by_tenant.setdefault(tenant, Units()).add(units)
    shown = []
    for name, units in by_class.items():
        one, goal = classes.get(name) if name in goals else None, goals.get(name)
        scope, deadline_s = (None, None) if one is None else (one.scope.value, one.deadline_s)
        members = {"class": name, "scope": scope, "deadline_s": deadline_s, "goal": goal}
        shown.append({**members, **units.to_json(goal)})
    total_s = sum(seconds for _, seconds in service.values())
    tenants = []
    for tenant in sorted({*by_tenant, *service}):
        weight, seconds = service.get(tenant, (1.0, 0.0))
        share = seconds / total_s if total_s else None
        of = {"tenant": tenant, "weight": weight, "service_s": seconds, "share": share}
        tenants.append({**of, **by_tenant.get(tenant, Units()).to_json(None)})
    attained = [one.attainment for one in by_tenant.values() if one.attainment is not None]
    return {
        "object": "slo_report",
        "since": since_s,
        "classes": shown,
        "tenants": tenants,
        "rows": [
            {"class": slo, "tenant": tenant, **units.to_json(goals.get(slo))}
            for (slo, tenant), units in sorted(rows.items())
        ],
        "fairness": {
            "attainment": jain(attained),
            "service": jain([per_weight(s, weight) for weight, s in service.values() if s]),
        },
    }


# The least product of a key's weight and that of its class.
_LEAST_WEIGHT: Final = MIN_WEIGHT**2


def jain(shares: Iterable[float]) -> float | None:
    """Return Jain's fairness index: 1 for equal shares, 1/n if one of n has everything. None
    without shares.
    """
    given = list(shares)
    most = max(given, default=0.0)
    if not most:
        return 1.0 if given else None
    # Squares of the shares themselves could overflow.
    parts = [share / most for share in given]
    return sum(parts) ** 2 / (len(parts) * sum([part * part for part in parts]))


def per_weight(service_s: float, weight: float) -> float:
    """Return service divided by weight, which may be tiny."""
    return service_s / max(weight, _LEAST_WEIGHT)
