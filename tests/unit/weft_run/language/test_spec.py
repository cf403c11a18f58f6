"""Workflows in YAML: the graph that they compile to, and the errors of files."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
import yaml
from weft_run import examples as workflows
from weft_run.language.check import WorkflowError
from weft_run.language.graph import (
    Branch,
    Format,
    Http,
    InputType,
    Llm,
    Loop,
    Python,
    Sql,
    Workflow,
)
from weft_run.language.spec import load, schema

REPORT = r"""
weft: 1
name: report
model: weft-demo
inputs: {docs: list, question: str}
ops:
  report:
    llm:
      system: "You write reports."
      user: "{{ question }}{% for f in clean %}\n- {{ f }}{% endfor %}"
  facts:
    for_each: docs
    llm: {system: "You extract facts.", user: "{{ question }}\n{{ item }}", max_tokens: 128}
  clean: {for_each: facts, python: my_ops:strip}
outputs: {report: report}
"""


def ops(text: str, outputs: str = "{out: a}") -> Workflow:
    head = "weft: 1\ninputs: {q: str, docs: list, n: int, any: any}\nops:\n"
    lines = "".join(f"  {line}\n" for line in text.splitlines())
    return load(f"{head}{lines}outputs: {outputs}\n", "w.yaml")


def test_a_workflow_compiles_to_a_graph() -> None:
    workflow = load(REPORT)
    assert (workflow.name, workflow.model) == ("report", "weft-demo")
    assert workflow.inputs == {"docs": InputType.LIST, "question": InputType.STR}
    assert [one.name for one in workflow.operators] == ["facts", "clean", "report"]
    facts, clean, report = workflow.operators
    assert isinstance(facts.body, Llm)
    assert facts.body.parameters == {"temperature": 0, "max_tokens": 128}
    assert [one.role for one in facts.body.messages] == ["system", "user"]
    assert (facts.for_each, facts.retries, facts.line, facts.deterministic) == ("docs", 2, 11, True)
    assert isinstance(clean.body, Python)
    assert (clean.body.function, len(clean.body.arguments), clean.retries) == ("my_ops:strip", 1, 0)
    assert report.inputs == ("clean", "question")
    assert workflow.outputs == {"report": "report"}


def test_json_is_accepted() -> None:
    text = '{"weft": 1, "ops": {"a": {"format": "x"}}, "outputs": {"out": "a"}}'
    assert load(text).operators[0].name == "a"


def test_all_kinds_of_operators() -> None:
    workflow = ops(
        """
a: {loop: {max: 4, until: "{{ run.error is none }}"},
    body: {draft: {llm: {user: "{{ q }}{{ previous }}"}},
           run: {sql: "{{ draft }}", on_error: value}}}
b: {branch: [{when: "{{ q == 'x' }}", format: "1"}, {llm: {user: "{{ q }}"}}]}
c: {http: {url: "http://h/{{ q }}", method: POST, json: {a: ["{{ docs }}", 1]}}, idempotent: true}
d: {python: {function: "m:f", args: {text: "{{ docs }}"}}}
e: {sql: {query: "insert into t values (:q)", parameters: {q: "{{ q }}"}, write: true}}
f: {llm: {reply_to: g, user: "Again."}, when: "{{ docs }}"}
g: {llm: {system: "S", user: "{{ q }}", seed: 1, parameters: {top_k: 3}}}
"""
    )
    found = workflow.by_name
    kinds = {name: type(one.body) for name, one in found.items()}
    assert kinds == {"a": Loop, "b": Branch, "c": Http, "d": Python, "e": Sql, "f": Llm, "g": Llm}
    reply = found["f"].body
    assert isinstance(reply, Llm)
    assert [one.role for one in reply.messages] == ["system", "user", "assistant", "user"]
    assert reply.messages[2].content.source == "{{ g }}"
    assert found["f"].inputs == ("docs", "g", "q")
    assert {name: one.retries for name, one in found.items()} == {
        "a": 0, "b": 0, "c": 2, "d": 0, "e": 0, "f": 2, "g": 2,
    }  # fmt: skip


def test_words_of_older_yaml_are_texts() -> None:
    (one,) = ops("a: {format: on}").operators
    assert isinstance(one.body, Format)
    assert one.body.template.source == "on"


def test_anchors_repeat_prompts() -> None:
    workflow = ops('a: {llm: {system: &s "Long.", user: x}}\nb: {llm: {system: *s, user: y}}')
    assert [one.body.messages[0].content.source for one in workflow.operators
            if isinstance(one.body, Llm)] == ["Long.", "Long."]  # fmt: skip


def test_braces_without_names_are_constants_of_a_request() -> None:
    (one,) = ops(
        """a: {llm: {user: x, stop: ["{{", "}}", "{{ 1"],
                     parameters: {chat_template: "{{ messages }}"}}}"""
    ).operators
    assert isinstance(one.body, Llm)
    assert one.body.parameters["stop"] == ["{{", "}}", "{{ 1"]
    assert one.body.parameters["chat_template"] == "{{ messages }}"


ERRORS = [
    ('a: {llm: {user: "{{ qq }}"}}', "4:23", "input is named 'qq'; did you mean q"),
    ('a: {llm: {user: "q {{ item }}"}}', "4:25", "only in operators with for_each"),
    ('a: {format: "{{ previous }}"}', "4:19", "only in the body of a loop"),
    ("a:\n  llm:\n    user: |\n      one\n      {{ qq }}", "8:12", "'qq'"),
    ("a:\n  llm:\n    user: |\n      one\n      {{ q + }}", "8:1", "template: "),
    ('a: {format: "{{ q | shuffle }}"}', "4:15", "shuffle"),
    (f"a:\n  format: |\n    one\n    {{{{ q{'.a' * 150} }}}}", "7:1", "nested too deeply"),
    ('a: {format: "{{ q | uper }}"}', "4:15", "filter is named 'uper'; did you mean upper?"),
    ('a: {format: "{{ cuont(q) }}"}', "4:15", "x | name; did you mean count?"),
    ('a: {format: "{% set x = 1 %}"}', "4:15", "'set' is not allowed"),
    ("a: {format: '{{ b }}'}\nb: {format: '{{ a }}'}", "4:3", "cycle: "),
    ("a: {loop: {max: 2, until: '{{ x }}'}, body: {x: {format: '{{ x }}'}}}", "4:64", "previous"),
    ("a: {loop: {until: '{{ x }}'}, body: {x: {format: 'x'}}}", "4:7", "max: is missing; add it"),
    ("a: {loop: {max: 0, until: '{{ x }}'}, body: {x: {format: 'x'}}}", "4:14", "greater than"),
    ("a: {loop: {max: 1, until: 'yes'}, body: {x: {format: 'x'}}}", "4:3", "one expression"),
    ("a: {loop: {max: 1, until: '{{ y }}'}, body: {x: {format: 'x'}}}", "4:33", "'y'"),
    ("a: {loop: {max: 1, until: '{{ x }}'}}", "4:3", "belong together"),
    ("a: {format: x, when: 'q == 1'}", "4:3", "one expression"),
    ("a: {for_each: q, format: x}", "4:17", "needs a list, and 'q' is of type str"),
    ("a: {for_each: b, format: x}\nb: {format: y}", "4:17", "'b' is of type str"),
    ("a: {for_each: doc, format: x}", "4:17", "input is named 'doc'; did"),
    ("a: {format: x}\na: {format: y}", "5:3", "occurs twice"),
    ("a: {format: x, formt: y}", "4:18", "unknown key; did you mean format"),
    ("a: {llm: {usr: x, user: y}}", "4:13", "unknown key; did you mean user"),
    ("a: {llm: {messages: [{role: user, contnt: x}]}}", "4:37", "did you mean content"),
    ("a: {branch: [{frmat: x}]}", "4:17", "did you mean format"),
    ("a: {sql: {qery: x}}", "4:13", "did you mean query"),
    ("a: {}", "4:3", "exactly one of llm"),
    ("a: {format: x, sql: y}", "4:3", "exactly one of"),
    ("a: {llm: {system: x}}", "4:7", "'user' or 'messages'"),
    ("a: {llm: {user: x, messages: [{role: user, content: y}]}}", "4:7", "has either"),
    ("a: {llm: {user: x, parameters: {n: 2}}}", "4:7", "'n'"),
    ("a: {llm: {user: x, parameters: {seed: 2}}}", "4:7", "beside 'parameters'"),
    ("a: {llm: {user: x, seed: 99999999999999999999}}", "4:7", "'seed' is not JSON"),
    ("a: {llm: {user: x, parameters: {logit_bias: {1: 2}}}}", "4:7", "'logit_bias' is not JSON"),
    ('a: {llm: {user: x, stop: ["{{ q }}"]}}', "4:33", "'stop' is the same in all rows"),
    ("a: {llm: {user: x, parameters: {o: {t: '{% if q %}x{% endif %}'}}}}", "4:49", "'o' is the"),
    ('a: {branch: [{llm: {user: x, model: "m{{ n }}"}}]}', "4:44", "'model' is the same"),
    ("a: {llm: {user: x, temperature: 3}}", "4:22", "less than or equal to 2"),
    ("a: {llm: {user: x, reply_to: c}}", "4:32", "no operator is named 'c'"),
    ("a: {llm: {user: x, reply_to: b}}\nb: {format: y}", "4:32", "not an llm operator"),
    ("a: {llm: {user: x, reply_to: a}}", "4:32", "cycle: a -> a"),
    ("a: {sql: 'DELETE FROM t'}", "4:7", "write: true"),
    ("a: {python: 'strip'}", "4:7", "pattern"),
    ("a: {python: 'm:f', retries: 1}", "4:3", "idempotent: true"),
    ("a: {format: x, idempotent: true}", "4:3", "for python, sql and http"),
    ("item: {format: x}\na: {format: y}", "4:3", "reserved"),
    ("q: {format: x}\na: {format: y}", "4:3", "another operator or input"),
    ("a: {branch: [{format: x}, {format: y}]}", "4:3", "must be the last"),
    ("1a: {format: x}\na: {format: y}", "4:3", "begins with no digit"),
    ("a: [1]", "4:3", "ops.a: must be a mapping"),
    ("größe: {format: x}\na: {format: y}", "4:3", "1 to 64 ASCII letters"),
    ("a: {for_each: größe, format: x}", "4:7", "1 to 64 ASCII letters"),
    ("a: {sql: {query: x, parameters: [1]}}", "4:23", "sql.parameters: must be a mapping"),
    ("a: {branch: []}", "4:7", "branch: needs at least 1 entry"),
    ("a: {format: x, on_error: valu}", "4:18", "'fail' or 'value'; did you mean value?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "reason"), ERRORS)
def test_errors_have_a_place_and_a_reason(text: str, place: str, reason: str) -> None:
    with pytest.raises(WorkflowError, match=re.escape(reason)) as found:
        ops(text)
    (line, *_) = [one for one in str(found.value).splitlines() if reason in one]
    assert line.startswith(f"w.yaml:{place}: "), line


@pytest.mark.parametrize("text", ["", "# nothing", "[1]", "text"])
def test_a_file_is_a_mapping(text: str) -> None:
    with pytest.raises(WorkflowError, match=r"^w.yaml:1:1: the file must be a mapping with weft"):
        load(text, "w.yaml")


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ("{out: b}", "w.yaml:5:16: outputs: outputs.out: no operator is named 'b'"),
        ("{}", "w.yaml:5:1: outputs: "),
        ("{error: a}", "w.yaml:5:11: outputs: every result has a column 'error'"),
        ("{row: a}", "every result has a column 'row'"),
        (
            "{q: q}",
            "no operator is named 'q'; pass the column through an operator: {format: '{{ q }}'",
        ),
        ("{out: a, out: a}", "w.yaml:5:19: outputs.out: the key occurs twice"),
    ],
)
def test_errors_of_outputs(outputs: str, reason: str) -> None:
    with pytest.raises(WorkflowError, match=re.escape(reason)):
        ops("a: {format: x}", outputs)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be a mapping"),
        ("a: [", "w.yaml:1:5: not valid YAML"),
        ("weft: 2\nops: {a: {format: x}}\noutputs: {o: a}", "w.yaml:1:1: weft: "),
        ("ops: {a: {format: x}}\noutputs: {o: a}", "weft: is missing"),
        ("weft: 1\nop: 3\nops: {a: {format: x}}\noutputs: {o: a}", "w.yaml:2:1: op: unknown key"),
        ("weft: 1\ninputs: {q: strng}\nops: {a: {format: x}}\noutputs: {o: a}",
         "w.yaml:2:10: inputs.q: must be 'str', 'int', 'float', 'bool', 'list', 'dict' or 'any'; "
         "did you mean str?"),
        ("a: &a [*a]", "an alias contains itself"),
        ("[" * 5000, "nested too deeply"),
        ("\0", "not valid YAML"),
        ("!!python/object:os.system x", "could not determine a constructor"),
        ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefg")
        ), "more than 200000 values"),
        ("x" * (4 * 2**20 + 1), "larger than 4 MiB"),
    ],
)  # fmt: skip
def test_files_that_are_no_workflows(text: str, reason: str) -> None:
    with pytest.raises(WorkflowError, match=re.escape(reason)):
        load(text, "w.yaml")


def test_all_errors_are_reported_in_order() -> None:
    with pytest.raises(WorkflowError) as found:
        ops('a: {format: "{{ x }}"}\nb: {format: "{{ y }}"}')
    assert [line.split(":")[1] for line in str(found.value).splitlines()] == ["4", "5"]


EXAMPLES = sorted((Path(workflows.__file__).parent).glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_schema_and_the_format_accept_the_examples(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    load(text, file.name)
    jsonschema.validate(yaml.safe_load(text), schema())


@pytest.mark.parametrize(
    "text",
    [
        "{weft: 1, ops: {a: {format: x}}}",
        "{weft: 1, ops: {a: {frmat: x}}, outputs: {o: a}}",
        "{weft: 1, ops: {a: {loop: {until: x}}}, outputs: {o: a}}",
        "{weft: 1, ops: {a: {python: {fun: x}}}, outputs: {o: a}}",
    ],
)
def test_the_schema_refuses_what_the_format_refuses(text: str) -> None:
    with pytest.raises(WorkflowError):
        load(text)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), schema())
