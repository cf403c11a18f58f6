"""The graph: inputs of operators, order, determinism and the digest of a workflow."""

from __future__ import annotations

import graphlib

import pytest
from weft_run.language.graph import (
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
from weft_run.language.templates import Template


def llm(text: str, **parameters: object) -> Llm:
    return Llm((Message("user", Template.parse(text)),), parameters=parameters)


def format_(name: str, text: str) -> Operator:
    return operator(name, Format(Template.parse(text)))


def workflow(*operators: Operator) -> Workflow:
    return Workflow("w", "m", {"q": InputType.STR}, operators, {"out": operators[-1].name})


def test_inputs_are_the_names_outside() -> None:
    assert operator("a", llm("{{ item }} {{ q }}"), for_each="docs").inputs == ("docs", "q")
    assert operator("a", llm("x"), when=Template.parse("{{ b }}")).inputs == ("b",)
    run = operator("run", Sql("db", Template.parse("{{ draft }}")), on_error="value")
    draft = operator("draft", llm("{{ q }}{{ previous }}{{ round }}"))
    loop = operator("try", Loop((draft, run), Template.parse("{{ run.error is none }}"), 3))
    assert draft.inputs == ("previous", "q", "round")
    assert loop.inputs == ("q",)
    case = Case(Template.parse("{{ q }}"), Format(Template.parse("{{ z }}")))
    assert operator("b", Branch((case,))).inputs == ("q", "z")


def test_order_is_topological() -> None:
    a, b = format_("a", "{{ b }}"), format_("b", "{{ q }}")
    assert [one.name for one in in_order((a, b))] == ["b", "a"]
    with pytest.raises(graphlib.CycleError):
        in_order((a, format_("b", "{{ a }}")))


def test_only_greedy_and_idempotent_operators_are_deterministic() -> None:
    assert operator("a", llm("x", temperature=0)).deterministic
    assert operator("a", llm("x", temperature=1, seed=3)).deterministic
    assert not operator("a", llm("x")).deterministic
    assert not operator("a", Python("m:f")).deterministic
    assert operator("a", Python("m:f"), idempotent=True).deterministic
    assert not operator("a", Sql("db", Template.parse("x"), write=True)).deterministic
    sampled = operator("b", llm("x", temperature=1))
    assert not operator("a", Loop((sampled,), Template.parse("{{ b }}"), 2)).deterministic


def test_the_signature_depends_on_the_meaning() -> None:
    a, b = format_("a", "{{ q }}"), format_("b", "{{ q }}!")
    first = workflow(a, b)
    moved = Workflow("w", "m", {"q": InputType.STR}, (b, a), {"out": "b"})
    assert first.signature() == moved.signature()
    assert first.signature() != workflow(a, format_("b", "{{ q }}?")).signature()
    line = operator("b", Format(Template.parse("{{ q }}!")), line=9)
    assert first.signature() == workflow(a, line).signature()
    assert len(first.signature()) == 64
