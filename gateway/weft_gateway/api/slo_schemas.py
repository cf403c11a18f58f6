"""The body of `GET /weft/slo`. A unit is a program, a turn or a call, by the scope of its class."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Slack(BaseModel):
    """Budgets of calls minus their predicted times, in seconds."""

    p10_s: float | None
    p50_s: float | None
    calls: list[int] = Field(
        description="per bucket of `weft_slo_slack_seconds`, the last one open"
    )


class UnitCounts(BaseModel):
    """Units that have ended."""

    units: int
    met: int
    late: int
    unended: int = Field(description="given up, failed, or idle for too long")
    refused: int
    attainment: float | None = Field(description="met / units; null without units")
    goal: float | None = Field(description="`attainment` of the class in the SLO file")
    goal_met: bool | None
    misses: dict[str, int] = Field(description="units that are not met, by cause")
    slack: Slack


class ClassUnits(UnitCounts):
    """The units of a class."""

    class_: str = Field(alias="class", description="empty for deadlines without a class")
    scope: str | None
    deadline_s: float | None


class TenantUnits(UnitCounts):
    """The units of a tenant, and its service."""

    tenant: str = Field(
        description="name of the key in the keys file, or its digest; `public` without keys; "
        "`others` beyond 1,024 tenants"
    )
    weight: float
    service_s: float = Field(description="engine time of all its calls")
    share: float | None = Field(description="of the service of all tenants")


class RowUnits(UnitCounts):
    """The units of a class and a tenant."""

    class_: str = Field(alias="class")
    tenant: str


class Fairness(BaseModel):
    """Jain's index over tenants: 1 for equal values; null without any."""

    attainment: float | None
    service: float | None = Field(description="of service_s / weight")


class SloReport(BaseModel):
    """Attainment, slack, misses and fairness."""

    object: Literal["slo_report"]
    gateways: list[str] = Field(description="ids of the gateways that have counted; new at a start")
    since: float
    classes: list[ClassUnits]
    tenants: list[TenantUnits]
    rows: list[RowUnits]
    fairness: Fairness
