"""GET /weft/tuning: the tuned values, the last windows and the last decision."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from weft_gateway.api.admin import guard
from weft_gateway.api.auth import Authenticator
from weft_gateway.config import Settings
from weft_gateway.tuning.replay.trace import Values
from weft_gateway.tuning.tuner import Decision, Tuner
from weft_gateway.tuning.tuner import Window as EndedWindow
from weft_gateway.tuning.values import SharedValues


class Window(BaseModel):
    """A window of ended programs or turns. Values are latencies in seconds under the rule `paper`,
    and slowdowns under `slowdown`."""

    begin: float
    length_s: float
    programs: int
    mean: float
    p95: float
    p: float = Field(description="p value of the test against the window before; 1 without one")
    triggered: bool


class TunedValues(BaseModel):
    """Values that are in use; null if they are not tuned."""

    alpha: float | None


class TuningDecision(BaseModel):
    """A decision at the end of a window."""

    at: float
    action: str = Field(description="none, kept, switched, rolled back or failed")
    reason: str
    values: TunedValues
    p: float
    predicted_gain: float
    cpu_s: float = Field(description="processor time of the replay")


class TuningState(BaseModel):
    """The tuner of this gateway. Only one of several gateways tunes."""

    rule: str = Field(description="paper, slowdown or off")
    tunes: bool = Field(description="whether this gateway tunes")
    values: TunedValues
    failing: str | None = Field(description="why the last tuning failed")
    windows: list[Window]
    decision: TuningDecision | None
    journal: dict[str, int] = Field(description="programs in progress, ended units, their calls")


def _values(values: Values) -> dict[str, float | None]:
    return {"alpha": values.alpha}


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "at": decision.at_s,
        "action": decision.action.value,
        "reason": decision.reason,
        "values": _values(decision.values),
        "p": decision.p,
        "predicted_gain": decision.gain,
        "cpu_s": decision.cpu_s,
    }


def _window(window: EndedWindow) -> dict[str, Any]:
    found = asdict(window.summary)
    return {
        "begin": window.begin_s,
        "length_s": window.length_s,
        "programs": found["count"],
        "mean": found["mean"],
        "p95": found["p95"],
        "p": window.p,
        "triggered": window.triggered,
    }


def router(
    auth: Authenticator, values: SharedValues, tuner: Tuner | None, alpha: float, settings: Settings
) -> APIRouter:
    """Create the route. alpha: of the settings."""
    api = APIRouter(
        prefix="/weft", tags=["administration"], dependencies=[Depends(guard(auth, settings))]
    )

    @api.get(
        "/tuning",
        summary="Get the tuned values, the last windows and the last decision",
        response_model=TuningState,
    )
    async def get_tuning() -> dict[str, Any]:
        """The values are those of all gateways. Windows and the decision are those of this one,
        since it tunes."""
        now = _values(values.values)
        if now["alpha"] is None and settings.balancer == "work":
            now["alpha"] = alpha
        return {
            "rule": settings.tuning.value,
            "tunes": values.leads,
            "values": now,
            "failing": (tuner.failing or None) if tuner is not None else None,
            "windows": [] if tuner is None else [_window(one) for one in tuner.windows],
            "decision": None
            if tuner is None or tuner.decision is None
            else _decision(tuner.decision),
            "journal": {} if tuner is None else tuner.journal.counts(),
        }

    return api
