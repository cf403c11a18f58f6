"""The runner: journal before effects, resumption, cancellation and errors of files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.waiting import until
from weft_run.io import runner as runner_module
from weft_run.io.budget import Budget
from weft_run.io.caller import Answer
from weft_run.io.errors import CallFailed
from weft_run.io.journal import SHARED, Journal, JournalError, Record, State
from weft_run.io.runner import Runner
from weft_run.io.tools import Tools
from weft_run.language.graph import (
    Format,
    InputType,
    Llm,
    Message,
    Operator,
    Python,
    Workflow,
    operator,
)
from weft_run.language.requests import LlmRequest
from weft_run.language.templates import Template
from weft_run.plan.commands import ANY, Command, Failure, Usage, Work
from weft_run.plan.dispatch import Dispatch

pytestmark = pytest.mark.anyio


class Model:
    """Answers with the prompt in capitals. gate: no call ends before it is set."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: CallFailed | None = None

    async def call(self, work: Work, refused: Any) -> Answer:
        request = work.request
        assert isinstance(request, LlmRequest)
        self.prompts.append(request.messages[0][1])
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Answer(request.messages[0][1].upper(), Usage(2, 0, 1))

    async def aclose(self) -> None:
        pass


def llm(text: str, temperature: float = 0) -> Llm:
    return Llm((Message("user", Template.parse(text)),), parameters={"temperature": temperature})


def python(*arguments: str) -> Python:
    return Python("my_ops:tool", tuple(map(Template.parse, arguments)))


class Scene:
    """A run of operators over rows, with a journal in a folder."""

    def __init__(self, folder: Path, *operators: Operator) -> None:
        self.folder = folder
        self.model = Model()
        outputs = {"out": operators[-1].name}
        self.workflow = Workflow("w", "m", {"q": InputType.STR}, operators, outputs)
        self.rows: list[tuple[int, Mapping[str, Any]]] = [(n, {"q": f"q{n}"}) for n in range(3)]

    def journal(self, resume: bool = False) -> Journal:
        return Journal(self.folder / "journal", {}, resume=resume)

    def runner(self, journal: Journal) -> Runner:
        machine = Dispatch(self.workflow, {ANY: 2})
        left = iter([row for row in self.rows if not journal.finished(row[0])])
        return Runner(machine, left, journal, self.model, Tools(), {ANY: 2})

    async def run(self, resume: bool = False) -> list[dict[str, Any]]:
        journal = self.journal(resume)
        outcome = await self.runner(journal).run()
        assert outcome.reason == "done"
        found = list(journal.rows())
        journal.close()
        return found


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("my_ops")
    monkeypatch.setitem(sys.modules, "my_ops", module)
    return module


async def test_a_run_writes_all_rows(tmp_path: Path) -> None:
    scene = Scene(tmp_path, operator("a", llm("{{ q }}")), operator("b", llm("{{ a }}!")))
    rows = await scene.run()
    assert rows == [{"row": n, "out": f"Q{n}!", "error": None} for n in range(3)]
    assert len(scene.model.prompts) == 6


async def test_known_answers_are_not_asked_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, operator("a", llm("{{ q }}")), operator("b", llm("{{ a }}", 1)))
    journal = scene.journal()
    runner = scene.runner(journal)
    machine = runner._machine
    machine.start()
    commands = machine.rows(scene.rows, last=True)
    await journal.write(Record(SHARED, commands[0].work.key, State.DONE, "KNOWN", 9))
    await journal.write(Record(0, "b", State.DONE, "sampled before"))
    journal.close()
    rows = await scene.run(resume=True)
    assert rows[0]["out"] == "sampled before"
    assert sorted(scene.model.prompts) == ["Q1", "Q2", "q1", "q2"]


async def test_answers_without_text_count_for_the_budget(tmp_path: Path) -> None:
    scene = Scene(tmp_path, operator("a", llm("{{ q }}", 1)))
    failure = CallFailed(Failure("no_content", "the answer contains no text"), Usage(2, 0, 1000))
    scene.model.error = failure
    scene.rows = [(n, {"q": f"q{n}"}) for n in range(20)]
    journal = scene.journal()
    machine = Dispatch(scene.workflow, {ANY: 2}, gate=Budget(tokens=5000))
    runner = Runner(machine, iter(scene.rows), journal, scene.model, Tools(), {ANY: 2})
    outcome = await runner.run()
    assert outcome.reason == "tokens"
    # A call without a limit reserves 1,024 tokens for its answer.
    assert 3 <= len(scene.model.prompts) <= 4
    spent = 1002 * len(scene.model.prompts)
    assert runner.tokens == spent
    journal.close()
    journal = scene.journal(resume=True)
    assert journal.counts()[2] == spent
    journal.close()


async def test_a_tool_that_was_interrupted_never_runs_again(tmp_path: Path, tool: Any) -> None:
    calls: list[str] = []
    tool.tool = lambda text: calls.append(text) or text
    scene = Scene(tmp_path, operator("post", python("{{ q }}")))
    journal = scene.journal()
    await journal.write(Record(1, "post", State.INTENT))
    journal.close()
    rows = await scene.run(resume=True)
    assert sorted(calls) == ["q0", "q2"]
    assert rows[1]["error"]["code"] == "unknown"
    assert [row["error"] for row in rows[::2]] == [None, None]


async def test_the_intent_is_durable_before_the_tool_runs(tmp_path: Path, tool: Any) -> None:
    seen: list[Any] = []

    def read(text: str) -> str:
        other = Journal.__new__(Journal)
        other.path = tmp_path / "journal"
        other._reader = other._open()
        seen.append(other.find(int(text[1:]), "post").state)
        other._reader.close()
        return text

    tool.tool = read
    await Scene(tmp_path, operator("post", python("{{ q }}"))).run()
    assert seen == [State.INTENT] * 3


async def test_a_failed_tool_fails_again_after_a_crash(tmp_path: Path, tool: Any) -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    tool.tool = fail
    scene = Scene(tmp_path, operator("post", python("{{ q }}")), operator("b", llm("{{ post }}")))
    rows = await scene.run()
    assert [row["error"]["message"] for row in rows] == [f"ValueError: q{n}" for n in range(3)]
    (tmp_path / "journal").unlink()
    journal = scene.journal()
    failed = ["python", "as before", 1]
    await journal.write(Record(0, "post", State.FAILED, failed))
    journal.close()
    assert (await scene.run(resume=True))[0]["error"]["message"] == "as before"


async def test_cancelling_keeps_the_results_of_tools(tmp_path: Path, tool: Any) -> None:
    loop, inside, leave = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def wait(text: str) -> str:
        loop.call_soon_threadsafe(inside.set)
        asyncio.run_coroutine_threadsafe(leave.wait(), loop).result(20)
        return text

    tool.tool = wait
    scene = Scene(tmp_path, operator("post", python("{{ q }}")))
    scene.rows = scene.rows[:1]
    journal = scene.journal()
    runner = scene.runner(journal)
    running = asyncio.create_task(runner.run())
    await inside.wait()
    runner.cancel()
    leave.set()
    assert (await running).reason == "cancelled"
    found = journal.find(0, "post")
    assert found is not None
    assert (found.state, found.value) == (State.DONE, "q0")
    journal.close()


async def test_rows_that_end_at_once_wait_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 5_000
    monkeypatch.setattr(runner_module, "_MOST_BYTES", 2 * size)
    text = Format(Template.parse("{{ 'a' * " + str(size) + " }}"))
    scene = Scene(tmp_path, operator("a", text))
    journal = scene.journal()
    waiting: list[int] = []

    def rows() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number in range(100):
            waiting.append(journal.waiting)
            yield number, {"q": ""}

    machine = Dispatch(scene.workflow, {ANY: 100})
    runner = Runner(machine, rows(), journal, scene.model, Tools(), {ANY: 100})
    assert await runner.run() == ("done", 100, 0, 0)
    assert max(waiting) < 4 * size
    assert journal.waiting == 0
    journal.close()


async def test_rows_with_calls_are_read_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, operator("a", llm("{{ q }}")))
    scene.model.gate.clear()
    journal = scene.journal()
    machine = Dispatch(scene.workflow, {ANY: 2})
    given: list[int] = []
    read = machine.rows

    def rows(found: Any, *, last: bool) -> list[Command]:
        given.append(0)

        def counted() -> Iterator[Any]:
            for one in found:
                given[-1] += 1
                yield one

        return read(counted(), last=last)

    machine.rows = rows  # type: ignore[method-assign]
    runner = Runner(machine, iter(scene.rows), journal, scene.model, Tools(), {ANY: 2})
    running = asyncio.create_task(runner.run())
    await until(lambda: len(scene.model.prompts) == 2, "two calls are in flight")
    # The plan orders the rows that it knows, so that it needs all of them.
    assert given == [3, 0]
    scene.model.gate.set()
    assert (await running).rows == 3
    journal.close()


async def test_cancelling_aborts_calls(tmp_path: Path) -> None:
    scene = Scene(tmp_path, operator("a", llm("{{ q }}")))
    scene.model.gate.clear()
    journal = scene.journal()
    runner = scene.runner(journal)
    running = asyncio.create_task(runner.run())
    await until(lambda: len(scene.model.prompts) == 2, "two calls are in flight")
    runner.cancel()
    assert (await running) == ("cancelled", 0, 0, 0)
    journal.close()


@pytest.mark.parametrize("rows", [1, 3])
async def test_an_error_of_the_journal_ends_the_run(tmp_path: Path, rows: int) -> None:
    scene = Scene(tmp_path, operator("a", llm("{{ q }}")))
    scene.rows = scene.rows[:rows]
    journal = scene.journal()
    runner = scene.runner(journal)
    abort = "SELECT RAISE(ABORT, 'the disk is full')"
    journal._reader.execute(f"CREATE TRIGGER full BEFORE INSERT ON rows BEGIN {abort}; END")
    journal._reader.commit()
    with pytest.raises(JournalError, match="the disk is full"):
        await runner.run()
    journal.close()
