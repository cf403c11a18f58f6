"""Requests the engine's report on a call whose answer had none."""

from __future__ import annotations

import httpx
from weft_engine.wire import CallReport

from weft_gateway.calls.call import Call
from weft_gateway.engine.engine_request import ReplicaKind
from weft_gateway.engine.errors import ReplicaWrongCall
from weft_gateway.engine.fetch import fetch
from weft_gateway.engine.health import secret_headers
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.sse import read_report

_ASK_TIMEOUT_S = 1.0
_MAX_REPORT_BYTES = 65_536


class Reports:
    """Requests reports from engines."""

    def __init__(self, registry: Registry, client: httpx.AsyncClient, secret: str) -> None:
        self._registry = registry
        self._client = client
        self._secret = secret

    async def ask(self, call: Call) -> CallReport | None:
        """Return the report of the call's replica; None if none arrives within a second."""
        replica = self._registry[call.replica]
        if replica.kind is not ReplicaKind.WEFT:
            return None
        url, headers = f"{replica.url}/weft/calls/{call.id}", secret_headers(replica, self._secret)
        try:
            answer = await fetch(self._client, url, headers, _ASK_TIMEOUT_S, _MAX_REPORT_BYTES)
            return read_report(answer.body, call.id) if answer.status == 200 else None
        except (httpx.HTTPError, ReplicaWrongCall):
            return None
