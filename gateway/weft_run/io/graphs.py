"""LangGraph graphs as tools of a run: the chat calls of their nodes become calls of the run.

LangGraph itself runs the graph, and `redirect` hands the calls of its nodes to the run.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

from weft_run.installing import command
from weft_run.io import redirect
from weft_run.io.rows import Input
from weft_run.language.check import WorkflowError
from weft_run.language.graph import Workflow
from weft_run.language.langgraph import from_graph, is_place
from weft_run.language.spec import load as load_file
from weft_run.yaml_errors import close

_INTERRUPT: Final = "__interrupt__"


def find_functions(workflow: Path) -> None:
    """Let Python find functions beside a workflow and in the current folder."""
    # `Path.resolve` would raise RuntimeError for a loop of links.
    sys.path[:0] = [os.path.dirname(os.path.realpath(workflow)), str(Path.cwd())]


def workflow_of(place: str, rows: Path) -> Workflow:
    """Return the workflow of a file, or of a graph `module:name`, whose inputs are the columns of
    the first row that are keys of its input. Raises WorkflowError, RowsError and OSError.
    """
    if Path(place).exists() or not is_place(place):
        return load_file(Path(place).read_text(encoding="utf-8"), place)
    try:
        keys = inputs(load(place))
    except ValueError as error:
        raise WorkflowError(str(error)) from None
    columns = Input(rows, {}).columns()
    found = [name for name in keys if name in columns]
    if not found:
        known, given = ", ".join(keys), ", ".join(columns) or "nothing"
        raise WorkflowError(
            f"{place}: no column is an input of the graph: it has {known}; "
            f"the first row has {given}"
        )
    return from_graph(place, found)


@functools.cache
def load(place: str) -> Any:
    """Return the compiled graph of `module:name`. Raises ValueError if it cannot run in a batch."""
    module, _, name = place.partition(":")
    try:
        from langgraph.graph.state import CompiledStateGraph, StateGraph
    except ModuleNotFoundError:
        raise ValueError(f"{place}: needs LangGraph: {command('langgraph')}") from None
    loaded = None
    try:
        loaded = importlib.import_module(module)
        found = getattr(loaded, name)
        graph = found.compile() if isinstance(found, StateGraph) else found
    except Exception as error:
        hint = close(name, vars(loaded)) if loaded and not hasattr(loaded, name) else ""
        raise ValueError(f"{place}: {type(error).__name__}: {error}{hint}") from None
    if not isinstance(graph, CompiledStateGraph):
        kind = f"{type(found).__module__.partition('.')[0]}.{type(found).__name__}"
        hint = "; call its method run in Python" if kind == "weft_run.Graph" else ""
        raise ValueError(f"{place}: must be a StateGraph of LangGraph, is {kind}{hint}")
    parts: list[tuple[str, Any]] = [("", graph), *graph.get_subgraphs(recurse=True)]
    for path, one in parts:
        nodes = [*one.interrupt_before_nodes, *one.interrupt_after_nodes]
        if nodes:
            inner = f" of subgraph {path!r}" if path else ""
            raise ValueError(
                f"{place}: a batch has no one to answer interrupts: compile the graph{inner} "
                f"without interrupt_before and interrupt_after ({', '.join(map(str, nodes))})"
            )
    redirect.install()
    # Rows are independent: none reads or writes checkpoints.
    return graph.copy({"checkpointer": None})


def inputs(graph: Any) -> list[str]:
    """Return the keys of a graph's input."""
    builder = graph.builder
    return [str(key) for key in builder.schemas[builder.input_schema]]


async def invoke(graph: Any, state: Mapping[str, Any], ask: redirect.MakeCall) -> Any:
    """Run a graph, and return its state as JSON values. Raises what LangGraph raises."""

    async def row() -> Any:
        redirect.ROW.set(redirect.Row(ask, asyncio.get_running_loop()))
        return await graph.ainvoke(dict(state))

    # A task has a context that other rows do not inherit.
    found = await asyncio.create_task(row())
    if isinstance(found, Mapping) and found.get(_INTERRUPT):
        values = ", ".join(str(one.value) for one in found[_INTERRUPT])
        raise RuntimeError(f"a node called interrupt({values}); a batch has no one to answer it")
    return plain(found)


def plain(value: Any) -> Any:
    """Return a state as JSON values. Messages have OpenAI's format."""
    from langchain_core.messages import BaseMessage, convert_to_openai_messages
    from pydantic import BaseModel

    if isinstance(value, BaseMessage):
        return convert_to_openai_messages(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
