"""Runs of graphs: cancellation while nodes wait for calls, and resumption."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from support.waiting import DEADLINE_S, until
from typing_extensions import TypedDict
from weft_run.io import graphs
from weft_run.io.budget import Budget
from weft_run.io.caller import Answer
from weft_run.io.journal import Journal
from weft_run.io.runner import Runner
from weft_run.io.tools import Tools
from weft_run.language.langgraph import from_graph
from weft_run.language.requests import ChatRequest
from weft_run.plan.commands import ANY, Gate, Usage, Work
from weft_run.plan.dispatch import Dispatch

pytestmark = pytest.mark.anyio


class State(TypedDict):
    q: str
    a: str
    b: str


class Model:
    """Answers with the number of the call. gate: no later call ends before it is set."""

    def __init__(self, free: int) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self._free = free

    async def call(self, work: Work, refused: Any) -> Answer:
        assert isinstance(work.request, ChatRequest)
        self.calls += 1
        number = self.calls
        if number > self._free:
            await self.gate.wait()
        message = {"role": "assistant", "content": f"{number}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return Answer("", Usage(1, 0, 1), body | {"choices": [choice]})

    async def aclose(self) -> None:
        pass


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> str:
    # Sampled calls.
    chat = ChatOpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", model="m")  # type: ignore[arg-type]

    def blocking(state: State) -> Any:
        return {"a": chat.invoke(state["q"]).content}

    async def waiting(state: State) -> Any:
        return {"b": (await chat.ainvoke(state["q"])).content}

    builder: Any = StateGraph(State)
    for name, node in {"blocking": blocking, "waiting": waiting}.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)
    module = ModuleType("graph_of_run")
    module.graph = builder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "graph_of_run", module)
    graphs.load.cache_clear()
    return "graph_of_run:graph"


def runner(graph: str, journal: Journal, model: Model, gate: Gate | None = None) -> Runner:
    windows = {ANY: 9}
    rows = [(number, {"q": "x"}) for number in range(2) if not journal.finished(number)]
    machine = Dispatch(from_graph(graph, ["q"]), windows, gate=gate)
    return Runner(machine, iter(rows), journal, model, Tools(), windows)


async def test_a_run_is_cancelled_while_nodes_wait_and_resumes(graph: str, tmp_path: Path) -> None:
    model = Model(free=3)
    journal = Journal(tmp_path / "journal", {})
    run = runner(graph, journal, model)
    ending = asyncio.create_task(run.run())
    await until(lambda: run.tokens == 6 and model.calls == 4, "three of four calls have ended")
    await until(lambda: journal.counts()[2] == 6, "their answers are in the journal")
    run.cancel()
    assert (await ending).reason == "cancelled"
    journal.close()

    model.gate.set()
    journal = Journal(tmp_path / "journal", {}, resume=True)
    resumed = await runner(graph, journal, model).run()
    assert (resumed.reason, resumed.failed) == ("done", 0)
    states = [row["state"] for row in journal.rows()]
    journal.close()
    # Sampled answers are kept, each for its row, and only the lost call is made again.
    assert model.calls == 5
    assert sorted(state[key] for state in states for key in "ab") == ["1", "2", "3", "5"]


async def test_a_journal_that_cannot_be_read_ends_the_run(graph: str, tmp_path: Path) -> None:
    def unreadable(work: Work) -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    journal = Journal(tmp_path / "journal", {})
    run = runner(graph, journal, Model(free=9), Budget(tokens=1000, is_free=unreadable))
    with pytest.raises(sqlite3.OperationalError):
        await asyncio.wait_for(run.run(), DEADLINE_S)
    journal.close()
