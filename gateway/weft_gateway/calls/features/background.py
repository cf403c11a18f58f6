"""Calls that continue in the background of their replica keep their place there."""

from __future__ import annotations

from weft_gateway.calls.background import BackgroundCalls
from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import Outcome


class BackgroundObserver(CallObserver):
    """Holds background calls. It comes after `StoredAnswers`, which finds the response's id."""

    def __init__(self, background: BackgroundCalls) -> None:
        self._background = background

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls whose answers have ids."""
        return endpoint.chained

    def closed(self, call: Call) -> None:
        """Hold a call whose response continues: after its first answer, or after its stream broke
        off.
        """
        if not call.in_background or not call.response_id:
            return
        if call.body_out is not None or call.outcome is not Outcome.OK:
            admitted, call.admitted = call.admitted, None
            self._background.hold(call.key.tenant, call.response_id, call.replica, admitted)
