"""Plays a workflow with Helium's Algorithm 1: the runner of `weft run` with another plan.

Calls, tools, journal, rewrites and windows are those of `weft run`. The plan is Helium's (sections
5 and 6): each model's replicas get even slices of the rows and keep them, and the calls of a
replica have the order of the schedule's nested sequences. Requests that compute static prefixes
ahead are left out: the first rows do so. The number of rounds of a loop is its expectation, because
Helium's graphs have no loops that depend on data.

Run as a process: one argument, a JSON object with the fields of `Play`. Prints one JSON object: the
seconds without imports.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_run.io.caller import HttpCaller, Server
from weft_run.io.job import Job, Opened
from weft_run.io.local import TOOLS, windows_of
from weft_run.io.runner import Runner
from weft_run.io.tools import Tools
from weft_run.language.spec import load
from weft_run.plan.calls import PlannedCall, planned_calls
from weft_run.plan.commands import ANY, Turn
from weft_run.plan.dispatch import Dispatch
from weft_run.plan.rewrite import rewrite

from weft_bench.planner.orders import Lane
from weft_bench.planner.schedule import schedule
from weft_bench.planner.token_steps import Worker


@dataclass(frozen=True, slots=True)
class Play:
    """gateway: base URL. workflow, rows, output: files. databases: files of SQLite by connection.
    kv_tokens: that a replica's cache holds.
    """

    gateway: str
    workflow: str
    rows: str
    output: str
    databases: dict[str, str]
    kv_tokens: int


class Sliced:
    """The plan of a run: Algorithm 1 over even slices of the rows. See `commands.Plan`."""

    def __init__(
        self,
        calls: Sequence[PlannedCall],
        serves: Mapping[str, frozenset[str] | None],
        rows: int,
        kv_tokens: int,
    ) -> None:
        """calls: in topological order. serves: models by replica, None for all. Raises ValueError
        if no replica serves a model.
        """
        replicas = {
            call.model: tuple(
                name for name, models in serves.items() if models is None or call.model in models
            )
            for call in calls
        }
        for model, names in replicas.items():
            if not names:
                raise ValueError(f"no replica serves the model {model!r}")
        # The replicas of a model have one schedule: that of the first one.
        first = {call.name: replicas[call.model][0] for call in calls}
        slices = {name: -(-rows // len(replicas[call.model])) for name, call in _named(calls)}
        workers = {name: Worker(kv_tokens) for name in serves}
        nested = schedule(calls, workers, first, slices)
        number = {call.name: place for place, call in enumerate(calls)}
        width = {first[name]: count for name, count in slices.items()}
        self._lanes = {
            name: Lane.of([[number[one] for one in part] for part in parts], 0, width[name])
            for name, parts in nested.items()
            if parts
        }
        self._replicas = {name: replicas[call.model] for name, call in _named(calls)}
        self._number, self._first, self._slices = number, first, slices

    def begin(self, row: int, columns: Mapping[str, Any]) -> None:
        """Rows need no preparation."""

    def ended(self, row: int) -> None:
        """Nothing to release."""

    def turn(self, operator: str, row: int) -> Turn:
        """Return the turn of a call on its replica; tools run row by row."""
        if operator not in self._number:
            return (0,)
        rank = row % self._slices[operator]
        return (self._lanes[self._first[operator]].turn(self._number[operator], rank),)

    def replica(self, operator: str, row: int) -> str:
        """Return the replica of the row's slice."""
        if operator not in self._replicas:
            return ANY
        return self._replicas[operator][row // self._slices[operator]]


def _named(calls: Sequence[PlannedCall]) -> list[tuple[str, PlannedCall]]:
    return [(call.name, call) for call in calls]


def main(play: Play) -> None:
    """Play, and write the output. Raises the errors of `weft run`, and ValueError."""
    begun = time.perf_counter()
    workflow = load(Path(play.workflow).read_text(), play.workflow)
    databases = {name: Path(file) for name, file in play.databases.items()}
    job = Job(workflow, Path(play.rows), Path(play.output), connections=databases)
    asyncio.run(_played(play, job))
    print(json.dumps({"seconds": time.perf_counter() - begun}))


async def _played(play: Play, job: Job) -> None:
    opened = Opened(job, resume=False)
    rows = opened.total
    caller = HttpCaller(play.gateway, opened.journal.program)
    tools = Tools(connections=job.connections)
    try:
        workflow = rewrite(job.workflow).workflow
        servers: list[Server] = await caller.servers()
        windows = windows_of(servers, None)
        serves = {one.program: one.models for one in servers}
        plan = Sliced(planned_calls(workflow), serves, rows, play.kv_tokens)
        # Windows help only those with the same models: with one model each, none helps another.
        alone = {name: frozenset({name}) for name in windows}
        machine = Dispatch(workflow, windows, tools=TOOLS, serves=alone, plan=plan, open_rows=rows)
        runner = Runner(machine, opened.rows(), opened.journal, caller, tools, windows)
        outcome = await runner.run()
        if outcome.failed:
            raise ValueError(f"{outcome.failed} of {outcome.rows} rows have failed")
        opened.write()
    finally:
        await tools.aclose()
        await caller.aclose()


if __name__ == "__main__":
    main(Play(**json.loads(sys.argv[1])))
