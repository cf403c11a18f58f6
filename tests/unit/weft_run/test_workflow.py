"""Workflows in Python: the same graphs as in YAML, errors, and a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft_run import workflow as w
from weft_run.language.spec import load
from weft_run.workflow import WorkflowError

DEBATE = r"""
weft: 1
inputs: {question: str}
ops:
  llm_1: {llm: {system: "You are A.", user: "{{ question }}", max_tokens: 9}}
  llm_2: {llm: {system: "You are B.", user: "{{ question }}", max_tokens: 9}}
  llm_3: {llm: {reply_to: llm_1, user: "Others: {{ llm_2 }}", max_tokens: 9}}
  llm_4: {llm: {reply_to: llm_2, user: "Others: {{ llm_1 }}", max_tokens: 9}}
  judge: {llm: {user: "{{ question }}\n{{ llm_3 }}{{ llm_4 }}", model: large}}
outputs: {answer: judge}
"""

LOOP = r"""
weft: 1
name: sql
inputs: {q: str, db: any, docs: list}
ops:
  attempt:
    loop: {max: 4, until: "{{ run.error is none }}"}
    body:
      draft: {llm: {user: "{{ q }}{{ previous }}{{ round }}"}}
      run: {sql: {query: "{{ draft }}", parameters: {db: "{{ db }}"}}, on_error: value}
  kind: {branch: [{when: "{{ q == 'x' }}", format: "{{ q }}"}, {llm: {user: "{{ q }}"}}]}
  clean: {for_each: docs, python: "json:dumps", when: "{{ q }}", idempotent: true}
  sent: {http: {url: "http://h/{{ kind }}", method: POST, json: {a: ["{{ clean }}", 1]}}}
outputs: {rows: attempt, kind: kind, sent: sent}
"""


def debate() -> w.Graph:
    question = w.input("question", "str")
    said = [w.llm(question, system=f"You are {who}.", max_tokens=9) for who in "AB"]
    said = [
        one.reply("Others: {{ others }}", others=other)
        for one, other in zip(said, reversed(said), strict=True)
    ]
    last = "{{ q }}\n{{ one }}{{ two }}"
    judge = w.llm(last, q=question, one=said[0], two=said[1], model="large", name="judge")
    return w.build(answer=judge)


def loop() -> w.Graph:
    q, db, docs = w.input("q", "str"), w.input("db"), w.input("docs", "list")
    draft = w.llm("{{ q }}{{ previous }}{{ round }}", q=q, name="draft")
    run = w.sql("{{ draft }}", draft=draft, parameters={"db": db}, on_error="value", name="run")
    attempt = w.loop(draft, run, until="{{ run.error is none }}", max=4, name="attempt")
    kind = w.branch(
        w.case("{{ q == 'x' }}", w.format("{{ q }}", q=q), q=q), w.case(None, w.llm(q)), name="kind"
    )
    clean = w.python(
        json.dumps, for_each=docs, when=w.text("{{ q }}", q=q), idempotent=True, name="clean"
    )
    sent = w.http(
        "http://h/{{ kind }}", kind=kind, method="POST", json={"a": [clean, 1]}, name="sent"
    )
    return w.build({"rows": attempt, "kind": kind, "sent": sent}, name="sql")


@pytest.mark.parametrize(("text", "make"), [(DEBATE, debate), (LOOP, loop)])
def test_yaml_and_python_make_the_same_graph(text: str, make: Callable[[], w.Graph]) -> None:
    ours, theirs = make(), load(text)
    assert ours.workflow.by_name.keys() == theirs.by_name.keys()
    assert ours.signature() == theirs.signature()
    assert ours.signature() == make().signature()


def test_lists_of_nodes_stand_for_lists() -> None:
    said = [w.llm(who) for who in "AB"]
    graph = w.build(out=w.llm("{{ said }}", said=said))
    assert graph.workflow.operators[-1].inputs == ("llm_1", "llm_2")


def test_only_needed_nodes_are_part_of_a_graph() -> None:
    a, b = w.llm("a"), w.sql("insert into t values (1)", write=True)
    w.llm("c")
    assert [one.name for one in w.build(out=a).workflow.operators] == ["llm_1"]
    assert len(w.build(out=a, effects=[b]).workflow.operators) == 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: w.llm("{{ q"), "template '{{ q'"),
        (lambda: w.llm("x", max_token=3), "'max_token' stands for an input, a node"),
        (lambda: w.llm("x", temperature=3), "temperature: Input should be less than"),
        (lambda: w.llm(), "needs 'user'"),
        (lambda: w.input("q", "text"), "unknown type 'text'; allowed: str"),
        (lambda: w.python(lambda: 1), "cannot be imported"),
        (lambda: w.python("json.dumps"), "python.function"),
        (lambda: w.python("m:f", retries=1), "a tool is retried only with"),
        (lambda: w.sql("delete from t"), "write: true"),
        (lambda: w.llm("x", for_each="docs"), "for_each is an input or a node, not str"),
        (lambda: w.llm("x", for_each=w.input("docs")).reply("y"), "no single answer"),
        (lambda: w.loop(w.llm("x"), until="{{ true }}", max=0), "max: "),
        (lambda: w.build(out=w.llm("{{ q }}")), "no operator or input is named 'q'"),
        (lambda: w.build(out=w.llm("x", when="no")), "a condition is one expression"),
        (lambda: w.build(out=3), "output 'out' must be a node, not int"),
        (lambda: w.build(), "at least one column"),
        (lambda: w.build(a=w.llm(w.input("q")), b=w.llm(w.input("q", "int"))), "two types"),
        (lambda: w.build(a=w.llm("x", name="a"), b=w.llm("y", name="a")), "another operator"),
        (lambda: w.case(None, w.llm("x", retries=3)), "without options"),
    ],
)
def test_errors(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(WorkflowError, match=re.escape(reason)):
        make()


def test_errors_name_file_and_line_of_the_program() -> None:
    wrong = w.llm("{{ q }}")
    line = wrong.operator.line
    with pytest.raises(WorkflowError, match=rf"{__file__}:{line}: operator 'llm_1': "):
        w.build(out=wrong)
    assert "wrong = w.llm" in Path(__file__).read_text().splitlines()[line - 1]


def test_a_graph_runs(tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text('{"docs": [1, 2]}\n{"docs": []}\n')
    docs = w.input("docs", "list")
    texts = w.python(json.dumps, for_each=docs)
    graph = w.build(text=w.format("{{ texts | join('+') }}", texts=texts))
    assert graph.run(rows, out=out) == w.Result("done", 2, 0, 0)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["text"] for one in found] == ["1+2", ""]


def test_names_of_texts_may_be_those_of_parameters() -> None:
    seed = w.input("seed")
    made = w.format("{{ seed }}", seed=seed, name="text")
    query = w.sql("select {{ model }}", model=seed, name="query")
    text, sql = w.build(a=made, b=query).workflow.operators
    assert (text.body.template.bindings, sql.body.query.bindings) == (
        {},
        {"model": "seed"},
    )


def test_a_parameter_of_a_request_is_refused_elsewhere() -> None:
    with pytest.raises(WorkflowError, match="temperature"):
        w.build(a=w.format("hi", temperature=1))
