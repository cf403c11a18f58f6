"""Recorded coding sessions as `weka_trace` files, which aiperf's scenario `inferencex-agentx-mvp`
plays. Pure.

The record has the format already: lengths, hashes of blocks, times, and sub-agents inside their
session. A file has one session, without the requests that exceed the model's context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]


def traces(records: Iterable[Record], context: int, calls: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the sessions of which at least two requests fit. context: longest prompt with its
    answer, tokens. calls: the first requests of a session, without its sub-agents; 0: all.
    """
    for record in records:
        kept = [one for request in record["requests"] if (one := _fitting(request, context))]
        if calls:
            kept = _first(kept, calls)
        if sum("in" in one for one in kept) > 1:
            yield {**record, "requests": kept}


def _fitting(request: Record, context: int) -> dict[str, Any] | None:
    """Return a request if it fits, and a sub-agent with its requests that do; otherwise None."""
    if "requests" in request:
        kept = [one for each in request["requests"] if (one := _fitting(each, context))]
        # The record has the instant of the end, and aiperf reads that of the start.
        begun_s = request["t"] - (request.get("duration_ms") or 0.0) / 1000
        return {**request, "t": begun_s, "requests": kept} if kept else None
    fits = request.get("hash_ids") and request["in"] + request["out"] <= context
    return dict(request) if fits else None


def _first(requests: list[dict[str, Any]], calls: int) -> list[dict[str, Any]]:
    found, left = [], calls
    for one in requests:
        left -= "in" in one
        if left < 0:
            break
        found.append(one)
    return found
