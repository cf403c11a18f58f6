"""`weft run` in virtual time: its machine and its plan send the calls of a batch."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from weft_engine.emulated.presets import EngineShape
from weft_gateway.policies.batch_window import AHEAD
from weft_run.language.graph import Workflow
from weft_run.language.spec import load
from weft_run.plan.commands import Command, Read, Send
from weft_run.plan.dispatch import Dispatch
from weft_run.plan.groups import Grouped
from weft_run.plan.prompts import Slot

from weft_bench.workflows.play import State, Warm
from weft_bench.workflows.tasks import Batch, Task


class Running:
    """Runs a batch as `weft run` does: `Dispatch` reads rows when it has room for them and keeps
    the calls in windows, `Grouped` places rows. A row can be read once it has arrived.
    """

    def __init__(
        self,
        batch: Batch,
        tasks: Sequence[Task],
        windows: Mapping[str, int],
        speeds: Mapping[str, float],
        *,
        grouped: bool = True,
        shared: bool = True,
    ) -> None:
        """windows: calls that may be in flight, by replica. speeds: as in `Dispatch`. grouped:
        rows have replicas; otherwise a call goes to the replica with room. shared: a replica
        without waiting calls gets those of another one.
        """
        # Equal calls stay separate here, as in the other systems: see `rewritten`.
        workflow = workflow_of(batch, temperature=1)
        self._batch, self._tasks = batch, tasks
        self._place = {operator_name(call.name): number for number, call in enumerate(batch.calls)}
        self._axes = {operator_name(axis): axis for axis in _axes(batch)}
        plan = Grouped(workflow, windows, speeds=speeds) if grouped else None
        model = batch.calls[0].model
        # Replicas with different models do not help each other.
        serves = None if shared else {name: frozenset({model, name}) for name in windows}
        self._machine = Dispatch(workflow, windows, serves=serves, speeds=speeds, plan=plan)
        self._commands: deque[Command] = deque(self._machine.start())
        self._arrived: deque[int] = deque()
        self._wanted = self._read = 0
        # By task: the number of the request in flight.
        self._flights: dict[int, int] = {}

    def warm(self) -> Iterable[Warm]:
        """Compute nothing ahead."""
        return ()

    def send(self, state: State, fresh: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Report ended calls and arrived rows, and send the calls that the machine sends."""
        rows = (self._tasks[number].row for number in fresh if not self._tasks[number].needs)
        self._arrived.extend(dict.fromkeys(rows))
        open_calls = set().union(*state.in_flight.values())
        for number in [one for one in self._flights if one not in open_calls]:
            value = self._tasks[number].name
            self._commands += self._machine.succeeded(self._flights.pop(number), value)
        while self._commands or (self._wanted and self._arrived):
            if not self._commands:
                self._read_rows()
                continue
            command = self._commands.popleft()
            if isinstance(command, Read):
                self._wanted += command.count
            elif isinstance(command, Send):
                work = command.work
                number = work.row * len(self._batch.calls) + self._place[work.operator]
                self._flights[number] = work.number
                yield number, work.window

    def _read_rows(self) -> None:
        count = min(self._wanted, len(self._arrived))
        rows = [self._arrived.popleft() for _ in range(count)]
        self._wanted -= count
        self._read += count
        columns = ((row, self._columns(row)) for row in rows)
        self._commands += self._machine.rows(columns, last=self._read == self._batch.rows)

    def _columns(self, row: int) -> dict[str, str]:
        return {name: f"{axis} {self._batch.value(axis, row)}" for name, axis in self._axes.items()}


def windows_of(names: Sequence[str], shapes: Sequence[EngineShape]) -> dict[str, int]:
    """Return the default windows of `weft run`, by replica."""
    return {name: ceil(AHEAD * one.slots) for name, one in zip(names, shapes, strict=True)}


def workflow_of(batch: Batch, temperature: float = 0) -> Workflow:
    """Return a batch as a workflow whose prompts begin alike where those of the batch do."""
    answers = {call.name for call in batch.calls}

    def text(run: object) -> str:
        assert isinstance(run, Slot)
        if run.key in answers:
            return f"{{{{ {operator_name(run.key)} }}}}"
        return " ".join(f"{{{{ {operator_name(axis)} }}}}" for axis in run.axes) or run.key

    operators = {
        operator_name(call.name): {
            "llm": {"user": "\n".join(map(text, call.prompt)), "temperature": temperature},
        }
        for call in batch.calls
    }
    needed = {need for call in batch.calls for need in call.needs}
    outputs = [call.name for call in batch.calls if call.name not in needed]
    document = {
        "weft": 1,
        "model": batch.calls[0].model,
        "inputs": {operator_name(axis): "str" for axis in _axes(batch)},
        "ops": operators,
        "outputs": {operator_name(name): operator_name(name) for name in outputs},
    }
    return load(json.dumps(document))


def _axes(batch: Batch) -> list[str]:
    """Return the columns of a batch. An answer is no column."""
    answers = {call.name for call in batch.calls}
    slots = (run for call in batch.calls for run in call.prompt if isinstance(run, Slot))
    return list(dict.fromkeys(axis for s in slots if s.key not in answers for axis in s.axes))


def operator_name(name: str) -> str:
    """Return the name that a call or a column has in a workflow."""
    return name.replace(".", "_")
