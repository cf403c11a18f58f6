"""A run in this process, with calls over HTTP: for `weft run` and for Python programs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, NamedTuple

from weft_run.io.budget import Budget
from weft_run.io.caller import Caller, HttpCaller, Server
from weft_run.io.errors import JobError
from weft_run.io.job import (
    Job,
    Opened,
    check_tools,
    code_of,
    makes_calls,
    models_of,
)
from weft_run.io.journal import JournalError
from weft_run.io.prompt_cache import CachingCaller, PromptCache
from weft_run.io.rows import RowsError
from weft_run.io.runner import Outcome, Runner
from weft_run.io.tools import Tools
from weft_run.language.graph import LangGraph, Workflow, bodies
from weft_run.plan.commands import ANY
from weft_run.plan.costs import Replica, relative_speeds
from weft_run.plan.dispatch import Counts, Dispatch
from weft_run.plan.groups import Grouped
from weft_run.plan.rewrite import rewrite
from weft_run.plan.windows import AHEAD

_log: Final = logging.getLogger(__name__)
# Tools that run at once.
TOOLS: Final = 8
# Rows of a graph that run at once for each call that may be in flight: some rows compute.
_GRAPHS_PER_CALL: Final = 2
# Calls in flight for a replica with an unknown number of slots.
CALLS_PER_REPLICA: Final = 64


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. gateway: base URL. in_flight: calls of all replicas, None for the default.
    tokens, errors: the budget, None for no limit. python: whether functions may run. writes:
    whether to write the output, and to delete the journal, once all rows have ended.
    """

    gateway: str
    api_key: str = ""
    in_flight: int | None = None
    tokens: int | None = None
    errors: int | None = None
    python: bool = True
    writes: bool = True


class Ended(NamedTuple):
    """A run that has ended. tokens: of the whole run. counts: by operator, without earlier parts of
    a resumed run.
    """

    outcome: Outcome
    tokens: int
    counts: Mapping[str, Counts]


Watch = Callable[[Runner, int], AbstractContextManager[None]]


async def run(
    job: Job, opened: Opened, options: Options, watch: Watch = lambda *_: nullcontext()
) -> Ended:
    """Run an opened job, and write its output if all rows have ended. watch: entered with the
    runner and the number of rows while the run continues. Raises JobError, RowsError and
    JournalError; then the journal is closed and keeps the finished work.
    """
    journal = opened.journal
    caller = HttpCaller(options.gateway, journal.program, api_key=options.api_key)
    calls: Caller = caller
    tools = Tools(connections=job.connections, hosts=job.hosts, python=options.python)
    try:
        _, failed, used, _ = journal.counts()
        known = [journal.knows]
        if job.prompt_cache is not None:
            calls = caching = CachingCaller(caller, PromptCache(job.prompt_cache))
            known.append(caching.knows)
        budget = Budget(
            options.tokens,
            options.errors,
            used,
            failed,
            is_free=lambda work: any(knows(work) for knows in known),
        )
        workflow = rewrite(job.workflow).workflow
        check_tools(workflow, tools)
        for file, digest in code_of(workflow).items():
            # A fix of a function is a reason to resume, so a change is no error.
            if journal.recorded(f"code {file}", digest) != digest:
                _log.warning("%s has changed; finished rows and calls keep their results", file)
        windows, serves, speeds = {ANY: 1}, {}, {}
        if makes_calls(workflow):
            servers = await caller.servers()
            windows, speeds = windows_of(servers, options.in_flight), speeds_of(servers)
            serves = {one.program: one.models for one in servers if one.models is not None}
            if nameless := models_of(workflow).get(""):
                model = await caller.only_model(nameless.text)
                workflow = replace(workflow, model=model)
                journal.pin("model", workflow.model)
            if named := models_of(workflow):
                await caller.check_models({name: one.text for name, one in named.items()})
        plan = Grouped(workflow, windows, serves, speeds)
        machine = Dispatch(
            workflow,
            windows,
            serves=serves,
            speeds=speeds,
            tools=_tools(workflow, windows),
            plan=plan,
            gate=budget,
        )
        runner = Runner(machine, opened.rows(), journal, calls, tools, windows)
        with watch(runner, opened.total):
            outcome = await runner.run()
        if outcome.reason == "done" and options.writes:
            opened.write()
        else:
            journal.close()
        return Ended(outcome, runner.tokens, machine.counts)
    except (JobError, RowsError, JournalError, OSError) as error:
        journal.close(delete=not journal.begun)
        if isinstance(error, OSError):
            raise JobError(str(error)) from None
        raise
    except BaseException:
        # Cancelled, or an error of the code. The lock of the journal must not outlive the run.
        journal.close()
        raise
    finally:
        await tools.aclose()
        await calls.aclose()


def _tools(workflow: Workflow, windows: Mapping[str, int]) -> int:
    """Return the number of tools that may run at once. Graphs mostly wait for calls, some of them
    in threads of the loop.
    """
    if not any(isinstance(body, LangGraph) for _, body in bodies(workflow.operators)):
        return TOOLS
    count = TOOLS + _GRAPHS_PER_CALL * sum(windows.values())
    threads = ThreadPoolExecutor(count, "graph")
    asyncio.get_running_loop().set_default_executor(threads)
    return count


def windows_of(servers: Sequence[Server], calls: int | None) -> dict[str, int]:
    """Return the calls in flight of each program. calls: of all, None for the default."""
    if calls is None:
        return {one.program: ceil(AHEAD * one.slots) or CALLS_PER_REPLICA for one in servers}
    used = servers[:calls]
    return {one.program: (calls + at) // len(used) for at, one in enumerate(used)}


def speeds_of(servers: Sequence[Server]) -> dict[str, float]:
    """Return the speed of each program's replica, as in `relative_speeds`. Empty if a replica
    reports no costs: all then count as equal.
    """
    known = [Replica(one.program, one.costs) for one in servers if one.costs is not None]
    return relative_speeds(known) if len(known) == len(servers) else {}
