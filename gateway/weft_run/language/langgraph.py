"""LangGraph graphs as workflows. Pure: the graph is loaded by `runs.graphs`.

A row is one run of the whole graph, by LangGraph itself: its nodes, edges, branches, waiting edges,
`Send` and `Command` mean what they mean in `graph.invoke`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from weft_run.language.check import WorkflowError
from weft_run.language.graph import RESERVED, InputType, LangGraph, Workflow, operator
from weft_run.language.templates import Template

# The column of the state that the graph returns.
STATE: Final = "state"
_OPERATOR: Final = "graph"
_PLACE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_place(text: str) -> bool:
    """Whether a text names an object of a module, `module:name`."""
    return _PLACE.fullmatch(text) is not None


def from_graph(place: str, inputs: Iterable[str]) -> Workflow:
    """Return the workflow of a graph. place: `module:name`. inputs: the columns that are its input,
    keys of its state. Raises WorkflowError.
    """
    names = list(inputs)
    if not is_place(place):
        raise WorkflowError(f"{place!r}: a graph is given as module:name")
    for name in names:
        if not name.isidentifier() or name in (*RESERVED, _OPERATOR):
            raise WorkflowError(f"{place}: a column cannot be named {name!r}")
    if not names:
        raise WorkflowError(f"{place}: needs at least one input")
    state = {name: Template.parse("{{ " + name + " }}") for name in names}
    body = LangGraph(place, state)
    types = dict.fromkeys(names, InputType.ANY)
    one = operator(_OPERATOR, body)
    return Workflow(place.rpartition(":")[2], "", types, (one,), {STATE: _OPERATOR})
