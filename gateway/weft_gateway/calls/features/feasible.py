"""Admission of programs by their targets: a first call whose target cannot be met is refused, if
the class of its program says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from weft_gateway import errors
from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import Outcome
from weft_gateway.model.slo import CallBudget, Late, Slos
from weft_gateway.policies.feasible import can_be_met, path_s, retry_after_s

# An idle replica serves a program after this time without one of its class: forecasts that are too
# long would never be corrected otherwise.
_PROBE_S: Final = 60.0


@dataclass(slots=True, eq=False)
class FeasibleObserver(CallObserver):
    """Decides about the first call of a program, between its opening and its sending. Later calls
    are always sent.
    """

    slos: Slos
    budgets: Budgets
    # By class: when its last program was served.
    _served_s: dict[str, float] = field(default_factory=dict, init=False)

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls that generate text. The gateway's own prefills are advance work."""
        return endpoint.is_text and endpoint is not PREFILL

    def opened(self, call: Call) -> None:
        """Let the call pass. Raises ApiError 429 for a call that is refused."""
        if call.program.calls > 1:
            return
        own = self.slos.classes.get(call.program.goal.slo)
        if own is None or own.late is Late.SERVE:
            return
        budget = self.budgets.of(call)
        if budget is None:
            return
        found = self.budgets.own(call, budget)
        waiting_s = wait_s(call)
        now_s = monotonic()
        served_s = self._served_s.setdefault(own.name, now_s)
        probes = waiting_s <= 0 and now_s - served_s >= _PROBE_S
        if not probes and not can_be_met(found, waiting_s):
            call.outcome, call.budget = Outcome.REFUSED, found
            raise _refusal(found, waiting_s)
        self._served_s[own.name] = now_s


def wait_s(call: Call) -> float:
    """Return the predicted wait at the call's replica, as of its placing. 0 if unknown."""
    costs = None if call.placed is None else call.placed.decision.costs
    return 0.0 if costs is None or call.replica not in costs else costs[call.replica].wait_s


def _refusal(found: CallBudget, wait_s: float) -> errors.ApiError:
    refusal = errors.of(
        "slo_infeasible",
        retry_after_s=retry_after_s(found, wait_s),
        name=found.slo,
        left_s=found.left_s,
        path_s=path_s(found, wait_s),
        wait_s=wait_s,
    )
    if path_s(found, 0.0) > found.left_s:
        # The clients of OpenAI and Anthropic do not repeat such a request by themselves.
        refusal.headers = (*refusal.headers, (b"x-should-retry", b"false"))
    return refusal
