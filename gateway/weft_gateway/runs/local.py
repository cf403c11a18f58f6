"""A run in this process, with calls over HTTP: for `weft run` and for Python programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from weft_gateway.runs.budget import Budget
from weft_gateway.runs.caller import HttpCaller
from weft_gateway.runs.errors import JobError
from weft_gateway.runs.job import Job, Opened, check_tools, makes_calls, needs_model
from weft_gateway.runs.journal import JournalError
from weft_gateway.runs.rows import RowsError
from weft_gateway.runs.runner import Outcome, Runner
from weft_gateway.runs.tools import Tools
from weft_gateway.workflows.commands import ANY, RowMajor
from weft_gateway.workflows.dispatch import Counts, Dispatch
from weft_gateway.workflows.rewrite import rewrite

# Calls in flight for each healthy replica, if the number of its slots is not known.
CALLS_PER_REPLICA: Final = 64


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. gateway: base URL. in_flight: calls of all replicas, None for the default.
    tokens, errors: the budget, None for no limit.
    """

    gateway: str
    api_key: str = ""
    in_flight: int | None = None
    tokens: int | None = None
    errors: int | None = None


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
    tools = Tools(connections=job.connections, hosts=job.hosts)
    try:
        workflow = rewrite(job.workflow).workflow
        check_tools(workflow, tools)
        windows = {ANY: 1}
        if makes_calls(workflow):
            windows = windows_of(await caller.programs(), options.in_flight)
            if needs_model(workflow):
                workflow = replace(workflow, model=await caller.only_model())
                journal.pin("model", workflow.model)
        _, failed, used = journal.counts()
        budget = Budget(options.tokens, options.errors, used, failed)
        machine = Dispatch(workflow, windows, plan=RowMajor(list(windows)), gate=budget)
        runner = Runner(machine, opened.rows(), journal, caller, tools, windows)
        with watch(runner, opened.stop - opened.start):
            outcome = await runner.run()
        if outcome.reason == "done":
            opened.write()
        else:
            journal.close()
        return Ended(outcome, runner.tokens, machine.counts)
    except (JobError, RowsError, JournalError, OSError) as error:
        journal.close(delete=not journal.begun)
        if isinstance(error, OSError):
            raise JobError(str(error)) from None
        raise
    finally:
        await tools.aclose()
        await caller.aclose()


def windows_of(programs: list[str], calls: int | None) -> dict[str, int]:
    """Return the calls in flight of each program. calls: of all, None for the default."""
    most = calls or CALLS_PER_REPLICA * len(programs)
    used = programs[:most]
    return {name: (most + at) // len(used) for at, name in enumerate(used)}
