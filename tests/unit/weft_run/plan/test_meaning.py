"""The meaning of operators: items, conditions, loops, branches and errors."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from weft_run.language.graph import (
    Body,
    Branch,
    Case,
    Format,
    InputType,
    Llm,
    Loop,
    Message,
    Operator,
    Python,
    Sql,
    Workflow,
    in_order,
    operator,
)
from weft_run.language.requests import LlmRequest, SqlRequest
from weft_run.language.templates import Template
from weft_run.plan.commands import (
    ANY,
    Command,
    Failure,
    Read,
    Row,
    RunTool,
    Send,
    Usage,
    Work,
    WriteRow,
)
from weft_run.plan.dispatch import Dispatch


def text(source: str) -> Format:
    return Format(Template.parse(source))


def llm(source: str) -> Llm:
    return Llm((Message("user", Template.parse(source)),))


def workflow(*operators: Operator, **outputs: str) -> Workflow:
    inputs = {"q": InputType.STR, "docs": InputType.LIST}
    return Workflow("w", "m", inputs, in_order(operators), outputs)


def played(workflow: Workflow, columns: dict[str, Any], execute: Any) -> Row:
    """Run one row; `execute` returns the value of a request, or its failure."""
    machine = Dispatch(workflow, {ANY: 1})
    todo: deque[Command] = deque(machine.start())
    while True:
        match todo.popleft():
            case Read():
                todo += machine.rows([(0, columns)], last=True)
            case Send(work) | RunTool(work):
                value = execute(work)
                ended = machine.failed if isinstance(value, Failure) else machine.succeeded
                todo += ended(work.number, value, Usage())
            case WriteRow(_, row):
                return row


def echo(work: Work) -> Any:
    assert isinstance(work.request, LlmRequest)
    return f"<{work.request.messages[-1][1]}>"


def one(body: Body, columns: dict[str, Any], execute: Any = echo, **about: Any) -> Any:
    row = played(workflow(operator("a", body, **about), a="a"), columns, execute)
    assert not row.failed
    return row.outputs["a"]


def test_operators_read_columns_and_operators() -> None:
    first, second = operator("a", llm("{{ q }}?")), operator("b", llm("{{ a }}!"))
    row = played(workflow(second, first, x="b", y="a"), {"q": "why"}, echo)
    assert row.outputs == {"x": "<<why?>!>", "y": "<why?>"}


def test_for_each_has_one_value_per_item() -> None:
    places: list[str] = []

    def execute(work: Work) -> Any:
        places.append(work.key)
        return echo(work)

    found = one(llm("{{ index }}{{ item }}"), {"docs": ["x", "y"]}, execute, for_each="docs")
    assert found == ["<0x>", "<1y>"]
    assert places == ["a[0]", "a[1]"]
    assert one(llm("{{ item }}"), {"docs": None}, for_each="docs") is None


def test_when_is_evaluated_per_item() -> None:
    when = Template.parse("{{ item > 1 }}")
    assert one(text("{{ item }}"), {"docs": [1, 2]}, for_each="docs", when=when) == [None, "2"]
    assert one(text("x"), {"q": ""}, when=Template.parse("{{ q }}")) is None


def test_the_first_case_that_holds_runs() -> None:
    cases = (
        Case(Template.parse("{{ q == 'a' }}"), text("first")),
        Case(Template.parse("{{ q == 'b' }}"), text("second")),
    )
    other = Case(None, text("other"))
    assert one(Branch((*cases, other)), {"q": "b"}) == "second"
    assert one(Branch((*cases, other)), {"q": "c"}) == "other"
    assert one(Branch(cases), {"q": "c"}) is None


def test_a_loop_ends_when_until_holds() -> None:
    draft = operator("draft", llm("{{ q }}{% if previous %} {{ previous.run.error }}{% endif %}"))
    run = operator("run", Sql("db", Template.parse("{{ draft }}")), on_error="value")
    operators: list[str] = []

    def execute(work: Work) -> Any:
        operators.append(work.operator)
        if isinstance(work.request, SqlRequest):
            if "wrong" not in work.request.query:
                return Failure("sql", "wrong")
            return [{"n": 1}]
        return echo(work)

    loop = Loop((draft, run), Template.parse("{{ run.error is none }}"), 4)
    found = one(loop, {"q": "Q"}, execute)
    assert found == {"draft": "<Q wrong>", "run": {"value": [{"n": 1}], "error": None}}
    assert operators == ["a.draft", "a.run", "a.draft", "a.run"]


def test_a_loop_ends_after_its_last_round() -> None:
    body = (operator("n", text("{{ round }}")),)
    assert one(Loop(body, Template.parse("{{ false }}"), 3), {}) == {"n": "3"}


def test_an_error_is_a_value_if_asked_for() -> None:
    def execute(work: Work) -> Any:
        return Failure("timeout", "too slow", attempts=3)

    found = one(Python("m:f"), {"docs": [1, 2]}, execute, for_each="docs", on_error="value")
    assert found == [{"value": None, "error": "too slow"}] * 2


def test_a_failed_operator_fails_its_row_and_what_depends_on_it() -> None:
    def execute(work: Work) -> Any:
        if work.key == "a":
            return Failure("timeout", "too slow", attempts=3)
        return echo(work)

    a, b = operator("a", llm("{{ q }}")), operator("b", llm("{{ a }}"))
    c = operator("c", llm("{{ q }}"))
    row = played(workflow(a, b, c, b="b", c="c"), {"q": "Q"}, execute)
    assert row.outputs == {"b": None, "c": "<Q>"}
    assert row.error is not None
    assert (row.error.operator, row.error.code, row.error.attempts) == ("a", "timeout", 3)


@pytest.mark.parametrize(
    ("body", "columns", "code"),
    [
        (text("{{ q.x }}"), {"q": {}}, "template"),
        (text("{{ item }}"), {"q": "text"}, "not_a_list"),
    ],
)
def test_errors_of_values_fail_the_row(body: Body, columns: dict[str, Any], code: str) -> None:
    each = "q" if code == "not_a_list" else None
    row = played(workflow(operator("a", body, for_each=each), a="a"), columns, echo)
    assert row.error is not None
    assert row.error.code == code


def test_arguments_keep_their_types() -> None:
    def execute(work: Work) -> Any:
        return work.request

    docs, q = Template.parse("{{ docs }}"), Template.parse("{{ q }}!")
    body = Python("m:f", (docs, 1), {"x": q})
    found = one(body, {"docs": [1], "q": "Q"}, execute)
    assert (found.arguments, found.named) == (([1], 1), {"x": "Q!"})
