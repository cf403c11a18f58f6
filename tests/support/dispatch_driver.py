"""Carries out the commands of the dispatch machine in a random order, and checks each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import orjson
from support.evaluate import OperatorError, evaluate
from support.workflow_graphs import answer, deterministic, executing, random_rows, random_workflow
from weft_run.language.graph import Loop, Operator, Workflow, digest
from weft_run.plan.commands import (
    ANY,
    Abort,
    Command,
    Failure,
    Finish,
    Read,
    Row,
    RunTool,
    Send,
    Turn,
    Usage,
    Work,
    WriteRow,
)
from weft_run.plan.dispatch import Dispatch

TOOLS, OPEN = 3, 4


class Placing:
    """A plan with arbitrary turns and replicas."""

    def __init__(self, random: Random) -> None:
        self._seed = random.randint(0, 1000)

    def begin(self, row: int, columns: Mapping[str, Any]) -> None:
        """Rows need no preparation."""

    def ended(self, row: int) -> None:
        """Nothing to release."""

    def turn(self, operator: str, row: int) -> Turn:
        return (Random(f"{self._seed} {operator} {row}").random(),)

    def replica(self, operator: str, row: int) -> str:
        return Random(f"{operator} {row}").choice(["r0", "r1", "unknown", ANY])


class Driver:
    """Carries out commands in a random order, and checks each of them."""

    def __init__(self, workflow: Workflow, rows: list[dict[str, Any]], random: Random) -> None:
        self.random = random
        self.rows = rows
        self.slots = {name: random.randint(1, 3) for name in ("r0", "r1", ANY)}
        speeds = {name: random.choice([0.25, 0.5, 1.0]) for name in ("r0", "r1")}
        self.machine = Dispatch(
            workflow, self.slots, speeds=speeds, tools=TOOLS, open_rows=OPEN, plan=Placing(random)
        )
        self.running: dict[int, Work] = {}
        self.aborted: set[int] = set()
        self.wanted = self.read = 0
        self.done: dict[int, Row] = {}
        self.begun: Counter[tuple[int, str]] = Counter()
        self.made: list[Work] = []
        self.reason = ""

    def run(self) -> None:
        self.take(self.machine.start())
        while not self.reason:
            self.take(self.event())
        left = {one.number for one in self.running.values() if one.is_call}
        assert left <= self.aborted
        assert self.machine.in_flight == len(left)
        assert self.machine.open_rows == 0

    def event(self) -> list[Command]:
        if self.wanted and (not self.running or self.random.random() < 0.3):
            count = self.random.randint(1, self.wanted)
            self.wanted -= count
            chunk = list(enumerate(self.rows))[self.read : self.read + count]
            self.read += count
            return self.machine.rows(chunk, last=self.read >= len(self.rows))
        if self.random.random() < 0.1:
            name = self.random.choice(list(self.slots))
            self.slots[name] = self.random.randint(1, 3)
            return self.machine.credit(name, self.slots[name])
        assert self.running, "the machine waits for nothing"
        work = self.running.pop(self.random.choice(list(self.running)))
        if work.number in self.aborted:
            self.aborted.remove(work.number)
            return self.machine.failed(work.number, Failure("aborted", ""))
        try:
            value = answer(work.request, work.safe, work.row, work.key)
        except OperatorError as error:
            failure = Failure(error.code, str(error), error.attempts)
            return self.machine.failed(work.number, failure)
        return self.machine.succeeded(work.number, value, Usage(1, 0, 1))

    def take(self, commands: list[Command]) -> None:
        for command in commands:
            assert not self.reason, "a command follows the last one"
            match command:
                case Read(count):
                    self.wanted += count
                    assert self.machine.open_rows + self.wanted <= OPEN
                case Send(work) | RunTool(work):
                    self.begin(work)
                case Abort(number):
                    assert self.running[number].is_call
                    self.aborted.add(number)
                case WriteRow(number, row):
                    assert number not in self.done
                    self.done[number] = row
                case Finish(reason):
                    self.reason = reason

    def begin(self, work: Work) -> None:
        assert work.number not in self.running
        if work.shared:
            alike = [w for w in self.running.values() if w.shared and w.key == work.key]
            assert all(one.number in self.aborted for one in alike), "two equal calls in flight"
        elif not deterministic(work.request, work.safe):
            self.begun[work.row, work.key] += 1
        self.running[work.number] = work
        self.made.append(work)
        tools = sum(not one.is_call for one in self.running.values())
        assert tools <= TOOLS
        if work.is_call:
            used = [w for w in self.running.values() if w.is_call and w.window == work.window]
            assert len(used) <= self.slots[work.window], "more calls in flight than credit"


def check(seed: int) -> None:
    """Run a random workflow over random rows, and compare with the naive evaluation."""
    random = Random(seed)
    workflow = random_workflow(random)
    rows = random_rows(random, random.randint(0, 9))
    driver = Driver(workflow, rows, random)
    driver.run()
    assert driver.reason == "done"
    naive: list[tuple[int, str, str]] = []

    def execute(task: Any, row: int) -> Any:
        naive.append((row, task.place, digest(task.request)))
        return executing(row)(task)

    expected = {
        number: evaluate(workflow, columns, lambda task, n=number: execute(task, n))
        for number, columns in enumerate(rows)
    }
    assert driver.done.keys() == expected.keys()
    for number, row in expected.items():
        found = driver.done[number]
        assert orjson.dumps([found.outputs, found.error]) == orjson.dumps([row.outputs, row.error])
    # A sampled call or a tool with an effect is made once per row, item and round.
    assert not [key for key, times in driver.begun.items() if times > 1]
    counts = driver.machine.counts.values()
    if not any(row.error for row in expected.values()) and not _catches(workflow.operators):
        # Nothing is executed that the naive evaluation would not execute.
        assert {(w.row, w.key) for w in driver.made if not w.shared} <= {
            (row, place) for row, place, _ in naive
        }
        assert {digest(work.request) for work in driver.made} == {one for *_, one in naive}
        assert sum(one.done for one in counts) == len(naive)
        assert sum(one.calls + one.merged + one.cached for one in counts) == len(naive)


def _catches(operators: tuple[Operator, ...]) -> bool:
    """Whether an operator makes errors values, so that rows without an error may contain some."""
    return any(
        one.on_error == "value" or (isinstance(one.body, Loop) and _catches(one.body.body))
        for one in operators
    )
