"""Plays a workflow with LangGraph's `abatch`, without a limit of calls at once.

Run as a process: one argument, a JSON object with the fields of `Play`. Writes the outputs of each
row, and prints one JSON object: the seconds of `abatch`, without imports. Calls of a model go to
each of its URLs in turn.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import SecretStr

from weft_bench.mapred import spider
from weft_bench.mapred.workload import EDITOR, EXPERTS, editor_prompt, expert_prompt

_TIMEOUT_S = 1800.0
# Asks a model: its number, system prompt, user message.
Ask = Callable[[int, str, str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Play:
    """graph: name of the workload. urls: base URLs of the servers of each model, with /v1. models:
    names. tokens: of an answer. rows, output: JSON files. databases: files of SQLite by name.
    """

    graph: str
    urls: dict[str, list[str]]
    models: list[str]
    tokens: int
    rows: str
    output: str
    databases: dict[str, str]


def asking(play: Play) -> Ask:
    """Return the function that asks the models."""

    def client(model: str, url: str) -> ChatOpenAI:
        return ChatOpenAI(
            model=model,
            base_url=url,
            api_key=SecretStr("none"),
            temperature=0,
            max_completion_tokens=play.tokens,
            timeout=_TIMEOUT_S,
            max_retries=2,
            extra_body={"ignore_eos": True},
        )

    clients = {
        model: itertools.cycle([client(model, url) for url in urls])
        for model, urls in play.urls.items()
    }

    async def ask(model: int, system: str, user: str) -> str:
        chosen = next(clients[play.models[model]])
        found = await chosen.ainvoke([("system", system), ("user", user)])
        return str(found.content)

    return ask


class Page(TypedDict):
    """One row of the map-reduce workflow."""

    context: str
    question: str
    said: Annotated[dict[str, str], operator.or_]
    answer: str


def map_reduce(ask: Ask) -> Any:
    """Return the compiled graph of the map-reduce workflow."""

    def expert(name: str) -> Any:
        async def node(state: Page) -> dict[str, Any]:
            prompt = expert_prompt(state["context"], state["question"])
            return {"said": {name: await ask(0, EXPERTS[name], prompt)}}

        return node

    async def edit(state: Page) -> dict[str, Any]:
        return {"answer": await ask(0, EDITOR, editor_prompt(state["question"], state["said"]))}

    graph = StateGraph(Page)
    graph.add_node("answer_all", edit)
    for name in EXPERTS:
        graph.add_node(name, expert(name))
        graph.add_edge(START, name)
    graph.add_edge(list(EXPERTS), "answer_all")
    graph.add_edge("answer_all", END)
    return graph.compile()


class Question(TypedDict, total=False):
    """One row of the text-to-SQL workflow."""

    db: str
    schema: str
    question: str
    queries: list[str]
    tables: str
    rounds: int
    draft: str
    query: str
    result: dict[str, Any]


def text_to_sql(ask: Ask, databases: dict[str, str]) -> Any:
    """Return the compiled graph of the text-to-SQL workflow."""

    async def select(state: Question) -> dict[str, Any]:
        prompt = spider.select_prompt(state["schema"], state["question"])
        return {"tables": await ask(0, spider.SELECTOR, prompt), "rounds": 0}

    async def write(state: Question) -> dict[str, Any]:
        prompt = spider.write_prompt(state["schema"], state["question"], state["tables"])
        if state["rounds"]:
            prompt += spider.failure_note(state["query"], state["result"]["error"])
        draft = await ask(1, spider.WRITER, prompt)
        # Emulated answers are no queries.
        query = state["queries"][state["rounds"]] if draft else draft
        return {"draft": draft, "query": query, "rounds": state["rounds"] + 1}

    async def execute(state: Question) -> dict[str, Any]:
        return {"result": await asyncio.to_thread(_query, databases[state["db"]], state["query"])}

    def over(state: Question) -> str:
        done = state["result"]["error"] is None or state["rounds"] >= spider.ROUNDS
        return END if done else "write"

    graph = StateGraph(Question)
    graph.add_node("select", select)
    graph.add_node("write", write)
    graph.add_node("execute", execute)
    graph.add_edge(START, "select")
    graph.add_edge("select", "write")
    graph.add_edge("write", "execute")
    graph.add_conditional_edges("execute", over, ["write", END])
    return graph.compile()


def _query(file: str, query: str) -> dict[str, Any]:
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return {"value": [dict(row) for row in connection.execute(query)], "error": None}
    except sqlite3.Error as error:
        return {"value": None, "error": str(error)}
    finally:
        connection.close()


def _outputs(graph: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a row as `weft run` writes them."""
    if graph != "spider":
        return {"answer": found["answer"]}
    attempt = {name: found[name] for name in ("draft", "query", "result")}
    return {"tables": found["tables"], "attempt": attempt}


async def _played(play: Play, rows: list[dict[str, Any]]) -> tuple[list[Any], float]:
    ask = asking(play)
    if play.graph == "spider":
        graph = text_to_sql(ask, play.databases)
    else:
        graph = map_reduce(ask)
        rows = [{**row, "said": {}, "answer": ""} for row in rows]
    begun = time.perf_counter()
    found = await graph.abatch(rows)
    return [_outputs(play.graph, one) for one in found], time.perf_counter() - begun


def main(play: Play) -> None:
    """Play, and write the outputs."""
    found, seconds = asyncio.run(_played(play, json.loads(Path(play.rows).read_text())))
    Path(play.output).write_text(json.dumps(found))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(Play(**json.loads(sys.argv[1])))
