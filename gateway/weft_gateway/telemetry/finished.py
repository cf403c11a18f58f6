"""Derives data from receipts that process table rows lack: ended programs, their sources, and calls
that were reassigned to another program. Pure.

The process table drops a program when it ends; its receipts remain for a limited time. The result
is computed on request, and no other state is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from weft_gateway.model import Program
from weft_gateway.telemetry.receipts import Receipt
from weft_gateway.telemetry.threads import critical_path

# A row's start may be slightly later than the arrival of its first call.
_MOMENT_S: Final = 1.0


def known_by(receipts: Sequence[Receipt]) -> dict[str, str]:
    """Return the source of each program's identity, by program id, from its latest call."""
    return {one.key.program: one.source for one in receipts if one.source and one.listed}


def regrouped(program: Program, receipts: Sequence[Receipt]) -> Program:
    """Return the row corrected for reassigned calls: calls counted for another program are added,
    and calls that belong to another program are subtracted. receipts: as in `finished`.
    """
    key, since_s = program.key, program.arrival_s - _MOMENT_S
    signs: list[tuple[int, Receipt]] = []
    for one in receipts:
        if one.counted is None:
            continue
        if one.key == key and one.counted != key:
            signs.append((1, one))
        elif one.counted == key and one.key != key and one.arrived_s >= since_s:
            signs.append((-1, one))
    if not signs:
        return program
    row: dict[str, Any] = {name: getattr(program, name) for name in (*_COUNTS, *_USED)}
    for sign, one in signs:
        row["calls"] += sign
        row["calls_closed"] += sign * bool(one.outcome)
        row["errors"] += sign * (one.outcome not in ("", "ok"))
        for name in _USED if one.report is not None else ():
            row[name] += sign * getattr(one.report, name)
    path_s, _ = critical_path([one for one in receipts if one.key == key])
    found = {name: max(value, 0) for name, value in row.items()}
    return replace(program, **found, critical_path_s=path_s)


def finished(receipts: Sequence[Receipt], alive: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the sessions of programs that are not `alive`, by id, in the API's format. Single-call
    programs without an identity and refused calls are left out. receipts: a tenant's receipts in
    the order of arrival.
    """
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


_COUNTS: Final = ("calls", "calls_closed", "errors")
_USED: Final = (
    "service_s", "waiting_s", "prompt_tokens", "cached_tokens", "output_tokens", "preemptions",
)  # fmt: skip


def _session(name: str, receipts: Sequence[Receipt]) -> dict[str, Any]:
    reports = [one.report for one in receipts if one.report is not None]
    usages = [one.usage for one in receipts if one.usage is not None]

    def total(field: str) -> Any:
        found = usages if field.endswith("_tokens") else reports
        return sum(getattr(one, field) for one in found) if found else None

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
        "slo": receipts[-1].budget.slo or None if receipts[-1].budget else None,
        "target": receipts[-1].budget.target_s if receipts[-1].budget else None,
        "last_call_arrival": receipts[-1].arrived_s,
        "last_call_completion": max(one.arrived_s + one.total_s for one in receipts),
    }
