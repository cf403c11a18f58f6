"""LangGraph graphs as tools: what is loaded, what is refused, and states as JSON."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict
from weft_run import workflow as w
from weft_run.io import graphs
from weft_run.io.errors import JobError
from weft_run.io.job import check_tools, makes_calls
from weft_run.io.tools import Tools
from weft_run.language.check import WorkflowError
from weft_run.language.langgraph import from_graph
from weft_run.language.requests import ChatRequest


class State(TypedDict):
    q: str
    a: str


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], str]:
    """Give an object a place in a module."""

    def put(value: Any) -> str:
        module = ModuleType("my_graphs")
        module.graph = value  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "my_graphs", module)
        graphs.load.cache_clear()
        return "my_graphs:graph"

    return put


def builder(node: Callable[[Any], Any], state: type = State) -> Any:
    found: Any = StateGraph(state)
    found.add_node("node", node)
    found.add_edge(START, "node")
    return found


def answers(text: str) -> graphs.redirect.Ask:
    """Answer all calls with a text and their node."""

    def ask(node: str, request: ChatRequest) -> Future[Any]:
        found: Future[Any] = Future()
        message = {"role": "assistant", "content": f"{text} {node}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": request.model}
        found.set_result(body | {"choices": [choice]})
        return found

    return ask


def test_nodes_call_the_run(place: Callable[[Any], str]) -> None:
    chat = ChatOpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", model="m")  # type: ignore[arg-type]
    graph = builder(lambda state: {"messages": [chat.invoke(state["messages"])]}, MessagesState)
    loaded = graphs.load(place(graph))
    state = {"messages": [{"role": "user", "content": "hi"}]}
    found = asyncio.run(graphs.invoke(loaded, state, answers("hello from")))
    assert found == {
        "messages": [*state["messages"], {"role": "assistant", "content": "hello from node"}]
    }


def test_a_checkpointer_is_not_used(place: Callable[[Any], str]) -> None:
    saver = InMemorySaver()
    graph = builder(lambda state: {"a": state["q"] + "!"}).compile(checkpointer=saver)
    found = asyncio.run(graphs.invoke(graphs.load(place(graph)), {"q": "x"}, answers("")))
    assert found == {"q": "x", "a": "x!"}
    assert not saver.storage


def test_interrupts_are_refused(place: Callable[[Any], str]) -> None:
    waits = builder(lambda state: {"a": interrupt("are you sure?")})
    with pytest.raises(RuntimeError, match="are you sure"):
        asyncio.run(graphs.invoke(graphs.load(place(waits)), {"q": "x"}, answers("")))
    for options in ({"interrupt_before": ["node"]}, {"interrupt_after": ["node"]}):
        inner = waits.compile(**options)
        for graph in (inner, builder(inner)):
            with pytest.raises(ValueError, match=r"no one to answer interrupts.*node"):
                graphs.load(place(graph))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (print, "must be a StateGraph of LangGraph, is builtin"),
        (w.build(said=w.llm("hello")), r"is weft_run\.Graph; call its method run in Python"),
        (StateGraph(State), "ValueError"),
    ],
)
def test_other_objects_are_errors(
    place: Callable[[Any], str], value: Any, reason: str, tmp_path: Path
) -> None:
    workflow = from_graph(place(value), ["q"])
    assert makes_calls(workflow)

    async def check() -> None:
        check_tools(workflow, Tools())

    with pytest.raises(JobError, match=reason):
        asyncio.run(check())
    with pytest.raises(WorkflowError, match=reason):
        graphs.workflow_of("my_graphs:graph", tmp_path / "rows.jsonl")
    with pytest.raises(ValueError, match=r"has no attribute 'other'$"):
        graphs.load("my_graphs:other")
    with pytest.raises(ValueError, match=r"has no attribute 'grph'; did you mean graph\?"):
        graphs.load("my_graphs:grph")


def test_columns_are_inputs_if_the_graph_has_them(
    place: Callable[[Any], str], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1, "q": "x"}\n{"q": "y"}\n')
    name = place(builder(lambda state: {"a": ""}))
    assert list(graphs.workflow_of(name, rows).inputs) == ["q"]
    rows.write_text('{"id": 1}\n')
    with pytest.raises(WorkflowError, match="it has q, a; the first row has id"):
        graphs.workflow_of(name, rows)


class Model(BaseModel):
    n: int


@dataclass
class Record:
    model: Model
    parts: tuple[HumanMessage, ...]


def test_states_are_json() -> None:
    call = {"name": "f", "args": {"a": 1}, "id": "1"}
    found = graphs.plain({"r": Record(Model(n=1), (HumanMessage("x"),)), 2: [AIMessage("y")]})
    assert found == {
        "r": {"model": {"n": 1}, "parts": [{"role": "user", "content": "x"}]},
        "2": [{"role": "assistant", "content": "y"}],
    }
    message = graphs.plain(AIMessage("", tool_calls=[call]))
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
