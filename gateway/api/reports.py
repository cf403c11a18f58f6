"""The engine's report on a call: read from an answer, or asked for when there is none."""

from __future__ import annotations

from math import inf

import httpx
import orjson

from engine_patches.wire import CallReport
from gateway.engine.health import secret_headers
from gateway.engine.lower import ReplicaKind
from gateway.engine.registry import Replica

_ASK_TIMEOUT_S = 1.0


def accept(report: CallReport | None, call: str) -> CallReport | None:
    """`report` if it is about `call` and possible: no engine may take service back."""
    if report is None or report.call != call:
        return None
    # Chained comparisons are false for NaN as well; what is no number raises.
    try:
        possible = (
            0 <= report.service_s < inf
            and 0 <= report.waiting_s < inf
            and 0 <= report.prompt_tokens < inf
            and 0 <= report.cached_tokens < inf
            and 0 <= report.output_tokens < inf
            and 0 <= report.preemptions < inf
        )
    except TypeError:
        return None
    return report if possible else None


def parse(text: bytes | None, call: str) -> CallReport | None:
    """The report in a header's value, None where there is none of this call."""
    if text is None:
        return None
    try:
        return accept(CallReport.from_mapping(orjson.loads(text)), call)
    except (ValueError, TypeError):
        return None


async def ask(
    client: httpx.AsyncClient, replica: Replica, call: str, secret: str
) -> CallReport | None:
    """What the replica says about a call that gave no report, within a second; None if nothing."""
    if replica.kind is not ReplicaKind.WEFT:
        return None
    try:
        answer = await client.get(
            f"{replica.url}/weft/calls/{call}",
            headers=secret_headers(replica, secret),
            timeout=_ASK_TIMEOUT_S,
        )
    except httpx.HTTPError:
        return None
    return parse(answer.content, call) if answer.status_code == 200 else None
