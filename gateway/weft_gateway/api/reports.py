"""The engine's report on a call: read from an answer, or asked for when there is none."""

from __future__ import annotations

import httpx
import orjson
from weft_engine.wire import CallReport

from weft_gateway.engine.fetch import fetch
from weft_gateway.engine.health import secret_headers
from weft_gateway.engine.lower import ReplicaKind
from weft_gateway.engine.registry import Replica

_ASK_TIMEOUT_S = 1.0
_MAX_REPORT_BYTES = 65_536


def accept(report: CallReport | None, call: str) -> CallReport | None:
    """`report` if it is about `call`. Its values were checked when it was read."""
    return report if report is not None and report.call == call else None


def parse(text: bytes | None, call: str) -> CallReport | None:
    """The report in a header's value, None where there is none of this call."""
    if text is None:
        return None
    try:
        return accept(CallReport.from_mapping(orjson.loads(text)), call)
    except ValueError:
        return None


async def ask(
    client: httpx.AsyncClient, replica: Replica, call: str, secret: str
) -> CallReport | None:
    """What the replica says about a call that gave no report, within a second; None if nothing."""
    if replica.kind is not ReplicaKind.WEFT:
        return None
    url, headers = f"{replica.url}/weft/calls/{call}", secret_headers(replica, secret)
    try:
        answer = await fetch(client, url, headers, _ASK_TIMEOUT_S, _MAX_REPORT_BYTES)
    except httpx.HTTPError:
        return None
    return parse(answer.body, call) if answer.status == 200 else None
