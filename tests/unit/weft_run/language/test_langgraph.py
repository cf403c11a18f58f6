"""LangGraph graphs as workflows."""

from __future__ import annotations

import pytest
from weft_run import workflow as w
from weft_run.language.check import WorkflowError, problems
from weft_run.language.langgraph import from_graph
from weft_run.language.requests import GraphRequest, rendered
from weft_run.plan.rewrite import rewrite


def test_a_row_is_the_input_of_the_graph() -> None:
    workflow = w.from_langgraph("my.graphs:debate", inputs=["question", "docs"]).workflow
    assert not problems(workflow)
    assert (workflow.name, dict(workflow.outputs)) == ("debate", {"state": "graph"})
    (one,) = rewrite(workflow).workflow.operators
    row = {"question": "q", "docs": [{"a": 1}]}
    assert rendered(one.body, row, "") == GraphRequest("my.graphs:debate", row)  # type: ignore[arg-type]
    assert workflow.signature() != from_graph("my.graphs:other", ["question", "docs"]).signature()


@pytest.mark.parametrize(
    ("place", "inputs", "reason"),
    [
        ("graphs", ["q"], "module:name"),
        ("m:g", [], "at least one input"),
        ("m:g", ["item"], "'item'"),
        ("m:g", ["a b"], "'a b'"),
        ("m:g", ["graph"], "'graph'"),
    ],
)
def test_bad_graphs_are_errors(place: str, inputs: list[str], reason: str) -> None:
    with pytest.raises(WorkflowError, match=reason):
        w.from_langgraph(place, inputs=inputs)
