"""`weft run module:graph` with real LangGraph and real ChatOpenAI, in front of a real gateway."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from weft_run import workflow as w
from weft_run.io.graphs import plain

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ROWS = 24
GRAPH = '''
import operator
import os
from typing import Annotated

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send
from typing_extensions import TypedDict

chat = ChatOpenAI(
    base_url=os.environ["BASE"] + "/v1", api_key="none", model="tiny", temperature=0, max_tokens=16
)
talk = ChatOpenAI(
    base_url=os.environ["BASE"] + "/v1", api_key="none", model="tiny", temperature=0, max_tokens=16,
    streaming=True,
)


@tool
def look_up(word: str) -> str:
    """Look up a word."""
    return word.upper()


class State(TypedDict):
    question: str
    docs: list
    views: Annotated[list, operator.add]
    notes: Annotated[list, operator.add]
    messages: Annotated[list, add_messages]
    rounds: int


def view(role):
    def node(state):
        return {"views": [role + chat.invoke(f"{role}: {state['question']}").content]}

    return node


async def judge(state):
    found = await talk.ainvoke([("system", "Judge."), ("user", "|".join(sorted(state["views"])))])
    return {"messages": [HumanMessage(state["question"]), found], "rounds": 0}


def each(state):
    return [Send("note", {"doc": one}) for one in state["docs"]]


async def note(state):
    return {"notes": [(await chat.ainvoke(f"Note: {state['doc']}")).content]}


async def revise(state):
    found = await chat.bind_tools([look_up]).ainvoke(state["messages"])
    return {"messages": [found], "rounds": state["rounds"] + 1}


def enough(state):
    return END if state["rounds"] >= 2 else "revise"


builder = StateGraph(State)
builder.add_node("lawyer", view("lawyer"))
builder.add_node("sceptic", view("sceptic"))
builder.add_node("judge", judge)
builder.add_node("note", note)
builder.add_node("revise", revise)
builder.add_edge(START, "lawyer")
builder.add_edge(START, "sceptic")
builder.add_edge(["lawyer", "sceptic"], "judge")
builder.add_conditional_edges("judge", each, ["note"])
builder.add_edge("note", "revise")
builder.add_conditional_edges("revise", enough)
graph = builder.compile()
paused = builder.compile(interrupt_before=["judge"])
'''


class Answers:
    """An engine script: the answer is a hash of the messages. after: a number of calls, and what
    happens then.
    """

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.after: tuple[int, Any] | None = None

    async def __call__(self, wire: Any, request: Any) -> None:
        body = request.json
        self.bodies.append(body)
        if self.after is not None and len(self.bodies) == self.after[0]:
            self.after[1]()
        if "poison" in json.dumps(body["messages"]):
            error = {"message": "poison is not allowed", "type": "x", "code": 400}
            await wire.plain({"error": error}, "400 Bad Request")
            return
        text = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()[:12]
        whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny"}
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        if body.get("stream"):
            chunk = whole | {"object": "chat.completion.chunk"}
            parts: list[Any] = [{"role": "assistant", "content": text}, {}]
            ends = [None, "stop"]
            events = [
                chunk | {"choices": [{"index": 0, "delta": part, "finish_reason": end}]}
                for part, end in zip(parts, ends, strict=True)
            ]
            events.append(chunk | {"choices": [], "usage": usage})
            texts = [json.dumps(event) for event in events] + ["[DONE]"]
            await wire.stream(*(f"data: {text}\n\n".encode() for text in texts))
            return
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if "tools" in body and len(body["messages"]) < 3:
            function = {"name": "look_up", "arguments": json.dumps({"word": text})}
            calls = [{"id": f"call_{text}", "type": "function", "function": function}]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        await wire.plain(whole | {"choices": [choice], "usage": usage})


class Folder:
    """A folder with a module of graphs and rows."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self._url = url
        (path / "graphs.py").write_text(GRAPH)

    def rows(self, rows: list[dict[str, Any]]) -> None:
        (self.path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def start(self, *command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            cwd=self.path,
            env=os.environ | {"NO_COLOR": "1", "COLUMNS": "160", "BASE": self._url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    def weft(self, *options: str) -> tuple[str, ...]:
        files = ("graphs:graph", "--input", "in.jsonl", "--output", "out.jsonl")
        return ("-m", "weft_gateway.cli", "run", *files, "--gateway", self._url, *options)

    async def run(self, *command: str) -> tuple[int, str, str]:
        process = await self.start(*command)
        async with asyncio.timeout(240):
            output, errors = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode(), errors.decode()

    def output(self) -> list[Any]:
        return [json.loads(line) for line in (self.path / "out.jsonl").read_text().splitlines()]


def requests(bodies: list[Any]) -> Counter[str]:
    """Count equal requests, without the fields of the gateway, and without those that fail."""
    names = ("model", "messages", "tools", "temperature", "max_completion_tokens")
    found = (json.dumps([one.get(name) for name in names]) for one in bodies)
    return Counter(text for text in found if "poison" not in text)


def some_rows() -> list[dict[str, Any]]:
    """Rows of which each third repeats an earlier one."""
    return [
        {"question": f"q{number % (2 * ROWS // 3)}", "docs": [f"d{number % 3}", "all"]}
        for number in range(ROWS)
    ]


async def test_rows_equal_those_of_langgraph_and_equal_calls_are_made_once(
    engine, weft, tmp_path, monkeypatch
):
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        folder = Folder(tmp_path, gateway.url)
        monkeypatch.setenv("BASE", gateway.url)
        monkeypatch.syspath_prepend(tmp_path)
        rows = some_rows()
        rows[5]["question"] = "poison"
        folder.rows(rows)
        module = importlib.import_module("graphs")
        expected: list[Any] = []
        for row in rows:
            try:
                expected.append(plain(await module.graph.ainvoke(row)))
            except Exception as error:
                expected.append(type(error).__name__)
        naive, answers.bodies = answers.bodies, []

        graph = w.from_langgraph("graphs:graph", inputs=["question", "docs"])
        out = tmp_path / "out.jsonl"
        run = functools.partial(graph.run, tmp_path / "in.jsonl", out=out, gateway=gateway.url)
        result = await asyncio.to_thread(run)
        assert (result.reason, result.rows, result.failed) == ("done", ROWS, 1)

        kind = expected.pop(5)
        found = folder.output()
        failed = found.pop(5)
        assert failed["error"]["message"].startswith(f"{kind}: ")
        assert "poison is not allowed" in failed["error"]["message"]
        assert (failed["state"], failed["error"]["op"]) == (None, "graph")
        assert [row["state"] for row in found] == expected
        assert all(row["error"] is None for row in found)
        assert any("tool_calls" in one for one in expected[0]["messages"])

        # Requests are those of LangGraph, each one once.
        made, wanted = requests(answers.bodies), requests(naive)
        assert made.keys() == wanted.keys()
        assert set(made.values()) == {1}
        assert made.total() < wanted.total()
        assert result.tokens == 8 * made.total()


async def test_a_killed_run_resumes(engine, weft, tmp_path):
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        folder = Folder(tmp_path, gateway.url)
        folder.rows(some_rows())
        status, _, errors = await folder.run(*folder.weft("--analyze"))
        assert status == 0, errors
        # Counts by node.
        assert "graph.lawyer" in errors
        whole, expected = len(answers.bodies), folder.output()
        (tmp_path / "out.jsonl").unlink()

        answers.bodies = []
        process = await folder.start(*folder.weft("--in-flight", "4"))
        answers.after = (whole // 2, process.kill)
        await process.wait()
        made, answers.after = len(answers.bodies), None
        assert made < whole
        status, _, errors = await folder.run(*folder.weft("--in-flight", "4", "--resume"))
        assert status == 0, errors
        assert folder.output() == expected
        assert len(answers.bodies) <= whole + 4
