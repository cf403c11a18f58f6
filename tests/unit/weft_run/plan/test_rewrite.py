"""Rewrites: what each does, and that random graphs keep their outputs."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evaluate import Task, evaluate
from weft_run.language.graph import Format, Workflow, digest
from weft_run.language.signature import signature
from weft_run.language.spec import load
from weft_run.plan.rewrite import Rewrite, rewrite


def ops(text: str, outputs: str) -> Workflow:
    head = "weft: 1\ninputs: {q: str, docs: list}\nops:\n"
    lines = "".join(f"  {line}\n" for line in text.splitlines())
    return load(f"{head}{lines}outputs: {outputs}\n", "w.yaml")


def names(workflow: Workflow) -> list[str]:
    return sorted(one.name for one in workflow.operators)


def reasons(rewrites: tuple[Rewrite, ...]) -> list[tuple[str, str, str]]:
    return [(one.kind, one.operator, one.into) for one in rewrites]


def test_operators_that_no_output_needs_are_pruned() -> None:
    found = rewrite(ops("a: {llm: {user: x}}\nb: {llm: {user: '{{ c }}'}}\nc: {llm: {user: y}}",
                        "{out: c}"))  # fmt: skip
    assert names(found.workflow) == ["c"]
    assert sorted(reasons(found.rewrites)) == [("prune", "a", ""), ("prune", "b", "")]


@pytest.mark.parametrize(
    ("effect", "stays"),
    [
        ("{sql: {query: 'insert into t values (1)', write: true}}", True),
        ("{sql: 'select 1'}", False),
        ("{python: 'm:f'}", True),
        ("{python: 'm:f', idempotent: true}", False),
        ("{http: {url: u, method: PUT}, idempotent: true}", True),
        ("{http: u}", False),
        ("{branch: [{when: '{{ q }}', python: 'm:f'}]}", True),
        ("{loop: {max: 1, until: '{{ x }}'}, body: {x: {python: 'm:f'}}}", True),
    ],
)
def test_effects_are_not_pruned(effect: str, stays: bool) -> None:
    found = rewrite(ops(f"a: {effect}\nb: {{format: x}}", "{out: b}"))
    assert ("a" in names(found.workflow)) is stays


def test_common_subgraphs_are_merged() -> None:
    found = rewrite(
        ops(
            """
a: {llm: {user: '{{ q }}'}}
b: {llm: {user: '{{q}}'}}
c: {llm: {user: 'More: {{ a }}'}}
d: {llm: {user: 'More: {{ b }}'}}
e: {format: '{{ d }}'}
f: {for_each: docs, llm: {user: '{{ e }}{{ item }}'}}
g: {for_each: docs, llm: {user: '{{ c }}{{ item }}'}}
""",
            "{x: c, y: d, z: f, v: g}",
        )
    )
    assert len(names(found.workflow)) == 3
    assert set(found.workflow.outputs) == {"x", "y", "z", "v"}
    assert len(set(found.workflow.outputs.values())) == 2
    assert {one.kind for one in found.rewrites} == {"merge"}


@pytest.mark.parametrize(
    ("body", "merges"),
    [
        ("{llm: {user: x, temperature: 1}}", False),
        ("{llm: {user: x, temperature: 1, seed: 3}}", True),
        ("{python: 'm:f'}", False),
        ("{python: 'm:f', idempotent: true}", True),
        ("{sql: 'select 1'}", True),
        ("{sql: {query: 'select 1', connection: log}}", False),
        (
            "{loop: {max: 2, until: '{{ %s }}'}, body: {%s: {llm: {user: x, temperature: 1}}}}",
            False,
        ),
    ],
)
def test_only_deterministic_operators_merge(body: str, merges: bool) -> None:
    write = "w: {sql: {query: 'insert into t values (1)', connection: log, write: true}}"
    two = [body % (inner, inner) if "%s" in body else body for inner in ("x", "y")]
    found = rewrite(ops(f"a: {two[0]}\nb: {two[1]}\n{write}", "{x: a, y: b}"))
    assert len(names(found.workflow)) == (2 if merges else 3)


WORDS = st.sampled_from(["", "x", "y"])


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Random graphs of all kinds, with many equal parts."""
    lines: list[str] = []
    texts, lists = ["q"], ["docs"]
    for number in range(draw(st.integers(1, 9))):
        name = f"o{number}"
        each = draw(st.sampled_from([*lists, None, None, None]))
        reads = draw(st.lists(st.sampled_from([*texts, *lists]), max_size=2))
        reads += ["item"] * (each is not None and draw(st.booleans()))
        text = draw(WORDS) + "".join(f"{{{{ {read} }}}}" for read in reads)
        simple = {
            "greedy": f"llm: {{user: '{text}'}}",
            "sampled": f"llm: {{user: '{text}', temperature: 1}}",
            "format": f"format: '{text}'",
            "tool": f"python: {{function: 'm:f', args: ['{text}', ['{text}']]}}, idempotent: true",
            "effect": f"python: {{function: 'm:f', args: ['{text}']}}",
        }
        kind = draw(st.sampled_from([*simple, "branch", "loop"]))
        condition = draw(st.sampled_from(["{{ q == 'x' }}", "{{ true }}", "{{ false }}"]))
        if kind == "branch":
            body = f'branch: [{{when: "{condition}", {simple["greedy"]}}}, {{{simple["format"]}}}]'
        elif kind == "loop":
            inner = f"i{number}"
            draft = (
                f"llm: {{user: '{text}{{{{ previous }}}}', temperature: {draw(st.integers(0, 1))}}}"
            )
            body = f'loop: {{max: 2, until: "{condition}"}}, body: {{{inner}: {{{draft}}}}}'
        else:
            body = simple[kind]
        more = f', when: "{condition}"' if draw(st.booleans()) else ""
        more += f", for_each: {each}" if each else ""
        lines.append(f"{name}: {{{body}{more}}}")
        (lists if each else texts).append(name)
    outputs = draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=3))
    named = ", ".join(f"c{place}: o{number}" for place, number in enumerate(outputs))
    return ops("\n".join(lines), f"{{{named}}}")


class Executions:
    """Answers requests with a hash of them. A sampled answer depends on its place, too."""

    def __init__(self, shares: bool) -> None:
        self.count: Counter[str] = Counter()
        self._answers: dict[str, Any] | None = {} if shares else None

    def __call__(self, task: Task) -> Any:
        key = signature(task.request, task.operator.idempotent)
        known = self._answers or {}
        if key in known:
            return known[key]
        named = key or digest([task.request, task.place])
        self.count[named] += 1
        answer = hashlib.sha256(named.encode()).hexdigest()[:6]
        if self._answers is not None and key is not None:
            self._answers[key] = answer
        return answer


ROWS = st.fixed_dictionaries({"q": WORDS, "docs": st.lists(WORDS, max_size=3)})


@given(workflows(), ROWS)
def test_rewritten_graphs_keep_their_outputs(workflow: Workflow, row: dict[str, Any]) -> None:
    naive, ours = Executions(shares=False), Executions(shares=True)
    expected = evaluate(workflow, row, naive)
    found = rewrite(workflow).workflow
    result = evaluate(found, row, ours)
    assert (result.outputs, result.failed) == (expected.outputs, expected.failed)
    # The first error goes only with its operator: a loop that no output needs.
    first = expected.error and expected.error.operator.partition("[")[0]
    if first is None or first in found.by_name:
        assert (result.error, result.unmet) == (expected.error, expected.unmet)
    # Each distinct request that is needed is executed once, and no other request.
    assert set(ours.count) <= set(naive.count)
    assert not [name for name, times in ours.count.items() if times > 1]


@given(workflows())
def test_rewriting_twice_changes_nothing_more(workflow: Workflow) -> None:
    once = rewrite(workflow).workflow
    assert rewrite(once).workflow.signature() == once.signature()


def test_formats_repeat_only_whole_texts() -> None:
    workflow = ops("a: {llm: {user: x}, when: '{{ q }}'}\nb: {format: '{{ a }}'}", "{b: b}")
    (_, second) = rewrite(workflow).workflow.operators
    assert isinstance(second.body, Format)
