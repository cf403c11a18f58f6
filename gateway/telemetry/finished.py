"""Programs that have ended, and how each is known, read out of receipts. Pure.

The process table forgets a program when it ends; its receipts stay for a while. Nothing else is
kept for this: it is put together when somebody asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from gateway.telemetry.receipts import Receipt
from gateway.telemetry.threads import critical_path


def known_by(receipts: Sequence[Receipt]) -> dict[str, str]:
    """How each program was found, by its id: the name that said so, of its latest call."""
    return {one.key.program: one.source for one in receipts if one.source and one.listed}


def finished(receipts: Sequence[Receipt], alive: Collection[str]) -> dict[str, dict[str, Any]]:
    """Sessions of programs that are not `alive`, by their ids, as the API shows sessions. Programs
    of one call that nobody could name are left out, and so are refused calls. receipts: a tenant's,
    in the order of arrival."""
    found: dict[str, list[Receipt]] = {}
    for one in receipts:
        name = one.key.program
        if (
            one.listed
            and one.source not in ("", "none")
            and one.outcome not in ("", "refused")
            and name not in alive
        ):
            found.setdefault(name, []).append(one)
    return {name: _session(name, of) for name, of in found.items()}


def _session(name: str, receipts: Sequence[Receipt]) -> dict[str, Any]:
    reports = [one.report for one in receipts if one.report is not None]

    def total(field: str) -> Any:
        return sum(getattr(report, field) for report in reports) if reports else None

    return {
        "id": name,
        "object": "session",
        "status": "finished",
        "known_by": receipts[-1].source,
        "created_at": receipts[0].arrived_s,
        "service_s": total("service_s"),
        "waiting_s": total("waiting_s"),
        "critical_path_s": critical_path(receipts)[0] if reports else None,
        "calls": len(receipts),
        "calls_in_flight": 0,
        "errors": sum(one.outcome != "ok" for one in receipts),
        "prompt_tokens": total("prompt_tokens"),
        "cached_tokens": total("cached_tokens"),
        "output_tokens": total("output_tokens"),
        "preemptions": total("preemptions"),
        "replicas": list(dict.fromkeys(one.replica for one in receipts)),
        "threads": [],
        "told": {},
        "last_call_arrival": receipts[-1].arrived_s,
        "last_call_completion": max(one.arrived_s + one.total_s for one in receipts),
    }
