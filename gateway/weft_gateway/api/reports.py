"""The engine's report on a call, asked for where the answer had none."""

from __future__ import annotations

import httpx
from weft_engine.wire import CallReport

from weft_gateway.engine.errors import ReplicaWrongCall
from weft_gateway.engine.fetch import fetch
from weft_gateway.engine.health import secret_headers
from weft_gateway.engine.lower import ReplicaKind
from weft_gateway.engine.registry import Replica
from weft_gateway.engine.sse import read_report

_ASK_TIMEOUT_S = 1.0
_MAX_REPORT_BYTES = 65_536


async def ask(
    client: httpx.AsyncClient, replica: Replica, call: str, secret: str
) -> CallReport | None:
    """What the replica says about a call that gave no report, within a second; None if nothing."""
    if replica.kind is not ReplicaKind.WEFT:
        return None
    url, headers = f"{replica.url}/weft/calls/{call}", secret_headers(replica, secret)
    try:
        answer = await fetch(client, url, headers, _ASK_TIMEOUT_S, _MAX_REPORT_BYTES)
        return read_report(answer.body, call) if answer.status == 200 else None
    except (httpx.HTTPError, ReplicaWrongCall):
        return None
