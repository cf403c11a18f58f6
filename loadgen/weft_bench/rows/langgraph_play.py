"""Plays the workflow with LangGraph's `abatch`, without a limit of calls at once.

Run as a process: one argument, a JSON object with the fields of `Play`. Writes the answer of each
row, and prints one JSON object: the seconds of `abatch`, without imports. Calls go to each URL in
turn.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import SecretStr

from weft_bench.rows.workload import EDITOR, EXPERTS, editor_prompt, expert_prompt

_TIMEOUT_S = 1800.0
# Asks the model: system prompt, user message.
Ask = Callable[[str, str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Play:
    """urls: base URLs of servers, with /v1. tokens: of an answer. rows, output: JSON files."""

    urls: list[str]
    model: str
    tokens: int
    rows: str
    output: str


def asking(play: Play) -> Ask:
    """Return the function that asks the model."""
    clients = itertools.cycle(
        [
            ChatOpenAI(
                model=play.model,
                base_url=url,
                api_key=SecretStr("none"),
                temperature=0,
                max_completion_tokens=play.tokens,
                timeout=_TIMEOUT_S,
                max_retries=2,
                extra_body={"ignore_eos": True},
            )
            for url in play.urls
        ]
    )

    async def ask(system: str, user: str) -> str:
        found = await next(clients).ainvoke([("system", system), ("user", user)])
        return str(found.content)

    return ask


class Page(TypedDict):
    """One row."""

    context: str
    question: str
    said: Annotated[dict[str, str], operator.or_]
    answer: str


def map_reduce(ask: Ask) -> Any:
    """Return the compiled graph."""

    def expert(name: str) -> Any:
        async def node(state: Page) -> dict[str, Any]:
            prompt = expert_prompt(state["context"], state["question"])
            return {"said": {name: await ask(EXPERTS[name], prompt)}}

        return node

    async def edit(state: Page) -> dict[str, Any]:
        return {"answer": await ask(EDITOR, editor_prompt(state["question"], state["said"]))}

    graph = StateGraph(Page)
    graph.add_node("answer_all", edit)
    for name in EXPERTS:
        graph.add_node(name, expert(name))
        graph.add_edge(START, name)
    graph.add_edge(list(EXPERTS), "answer_all")
    graph.add_edge("answer_all", END)
    return graph.compile()


async def _played(play: Play, rows: list[dict[str, Any]]) -> tuple[list[str], float]:
    graph = map_reduce(asking(play))
    begun = time.perf_counter()
    found = await graph.abatch([{**row, "said": {}, "answer": ""} for row in rows])
    return [one["answer"] for one in found], time.perf_counter() - begun


def main(play: Play) -> None:
    """Play, and write the answers."""
    found, seconds = asyncio.run(_played(play, json.loads(Path(play.rows).read_text())))
    Path(play.output).write_text(json.dumps(found))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(Play(**json.loads(sys.argv[1])))
