"""Plays programs, as graphs of calls, on an engine in virtual time; keeps the process table's
numbers as the gateway does (Agentix 4.2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# A call of a program: its decode steps, and the calls whose answers it needs.
Graph = Mapping[str, tuple[int, Sequence[str]]]


@dataclass
class Row:
    """A program's row of the process table."""

    service: float = 0.0
    waiting: float = 0.0
    critical_path: float = 0.0
    open: dict[str, float] = field(default_factory=dict)


def chain(steps: Sequence[int]) -> Graph:
    """A program of one thread."""
    return {str(i): (n, [str(i - 1)] if i else []) for i, n in enumerate(steps)}


def play(engine: Any, programs: Mapping[str, Graph], limit: int = 500) -> dict[str, float]:
    """Run all programs, which arrive together; the instant at which each has finished.

    A call is sent as soon as the calls that it needs are answered.
    """
    rows = {name: Row() for name in programs}
    done: dict[str, set[str]] = {name: set() for name in programs}
    sent: dict[str, set[str]] = {name: set() for name in programs}
    ends: dict[str, float] = {}
    seen = 0

    def send() -> None:
        for name, graph in programs.items():
            row = rows[name]
            for call, (steps, needs) in graph.items():
                if call not in sent[name] and done[name].issuperset(needs):
                    sent[name].add(call)
                    row.open[call] = row.critical_path
                    engine.add(
                        f"{name}/{call}", program=name, service=row.service,
                        waiting=row.waiting, critical_path=row.critical_path, tokens=steps,
                    )  # fmt: skip

    send()
    for _ in range(limit):
        if not engine.busy:
            assert len(ends) == len(programs), "a program never finished"
            return ends
        engine.step()
        for report in engine.reports[seen:]:
            name, call = report.call.split("/")
            row = rows[name]
            row.service += report.service_s
            row.waiting += report.waiting_s
            path = row.open.pop(call) + report.service_s
            row.critical_path = max(row.critical_path, path)
            done[name].add(call)
            if len(done[name]) == len(programs[name]):
                ends[name] = engine.now
        seen = len(engine.reports)
        send()
    raise AssertionError("the programs did not come to an end")
