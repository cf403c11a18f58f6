"""Admission of programs by their targets: a first call whose target cannot be met is refused, or
waits until its replica has nothing else to do, as the class of its program says.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable
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
from weft_gateway.policies.feasible import Verdict, path_s, retry_after_s, verdict
from weft_gateway.programs.table import ProcessTable, TableUnavailable

# An idle replica serves a program after this time without one of its class: forecasts that are too
# long would never be corrected otherwise.
_PROBE_S: Final = 60.0
# How often the first held call of a replica looks whether it is idle. Other gateways use it, too.
_LOOK_S: Final = 0.1


@dataclass(slots=True, eq=False)
class FeasibleObserver(CallObserver):
    """Decides about the first call of a program, between its opening and its sending. Later calls
    are always sent. wait_s: how long a call is held at most.
    """

    slos: Slos
    budgets: Budgets
    table: ProcessTable
    wait_s: float
    # By class: when its last program was served.
    _served_s: dict[str, float] = field(default_factory=dict, init=False)
    # By replica: the calls that are held, and the lock of the first one.
    _held: Counter[str] = field(default_factory=Counter, init=False)
    _first: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock), init=False
    )

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls that generate text. The gateway's own prefills are advance work."""
        return endpoint.is_text and endpoint is not PREFILL

    def opened(self, call: Call) -> Awaitable[None] | None:
        """Let the call pass, or hold it. Raises ApiError 429 for a call that is refused."""
        if call.program.calls > 1:
            return None
        own = self.slos.classes.get(call.program.goal.slo)
        if own is None or own.late is Late.SERVE:
            return None
        budget = self.budgets.of(call)
        if budget is None:
            return None
        found = self.budgets.own(call, budget)
        waiting_s = wait_s(call)
        decided = verdict(own.late, found, waiting_s)
        now_s = monotonic()
        served_s = self._served_s.setdefault(own.name, now_s)
        if decided is Verdict.REFUSE and waiting_s <= 0 and now_s - served_s >= _PROBE_S:
            decided = Verdict.SERVE
        if decided is not Verdict.REFUSE:
            self._served_s[own.name] = now_s
        if decided is Verdict.REFUSE:
            call.outcome, call.budget = Outcome.REFUSED, found
            raise _refusal(found, waiting_s)
        if decided is not Verdict.HOLD:
            return None
        # For the receipt and the report, if the client leaves before the call is sent.
        call.budget = found
        return self._hold(call)

    async def _hold(self, call: Call) -> None:
        replica, begun = call.replica, monotonic()
        self._held[replica] += 1
        try:
            async with asyncio.timeout(self.wait_s), self._first[replica]:
                # Calls of other gateways end without an event here.
                while (await self.table.count()).get(replica, 0) > self._held[replica]:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
        except (TimeoutError, TableUnavailable):
            return
        finally:
            self._held[replica] -= 1
            call.held_s += monotonic() - begun


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
