"""Explanations: figures, savings, hints, and their text."""

from __future__ import annotations

import pytest
from weft_run.language.graph import Workflow
from weft_run.language.spec import load
from weft_run.plan.explain import Explained, explain
from weft_run.plan.explain_text import text

RULES = "Answer in three sentences and cite the line that you use. Never begin with a greeting. "
WORKFLOW = f"""
weft: 1
name: report
inputs: {{docs: list, q: str}}
ops:
  note: {{format: "Facts about {{{{ q }}}}"}}
  unused: {{llm: {{user: "x {{{{ q }}}}"}}}}
  one: {{for_each: docs, llm: {{system: "You list facts.", user: "{{{{ item }}}} {RULES}"}}}}
  two: {{for_each: docs, llm: {{system: "You list facts.", user: "{{{{item}}}} {RULES}"}}}}
  try:
    loop: {{max: 4, until: "{{{{ run.error is none }}}}"}}
    body:
      draft: {{llm: {{user: "{{{{ q }}}}"}}}}
      run: {{sql: "{{{{ draft }}}}", on_error: value}}
  both: {{llm: {{user: "{{{{ one }}}}{{{{ two }}}}"}}}}
outputs: {{both: both, tried: try}}
"""
ROWS = [
    {"docs": ["a long document", "x"], "q": "Why?"},
    {"docs": ["a long document", "y", "z"], "q": "Why?"},
]


def found(rows: int = 2) -> Explained:
    return explain(load(WORKFLOW), ROWS, rows)


def test_savings_of_rewrites_are_counted() -> None:
    one = found()
    savings = {(each.kind, each.operator): requests for each, requests in one.savings}
    # Both have 5 items in two rows.
    assert savings[("merge", "two")] == 5
    assert savings[("prune", "unused")] == 2
    # A text is no request.
    assert savings[("prune", "note")] == 0
    # Naive: 2 unused, 5 + 5 facts, 2 drafts, 2 queries, 2 reports.
    assert one.naive == 18
    # The document that two rows have is read once, and so is their question.
    assert one.merged == 1 + 1 + 1
    assert one.requests == one.naive - 5 - 2 - one.merged


def test_figures_of_a_sample_are_scaled() -> None:
    small, large = found(), found(200)
    assert large.requests == 100 * small.requests
    assert large.counts["one"].usage.prompt == 100 * small.counts["one"].usage.prompt
    assert "figures of 2 rows, scaled to 200" in large.notes


def test_a_value_that_is_no_list_is_a_row_without_items() -> None:
    workflow = load(
        "{weft: 1, inputs: {l: any}, outputs: {a: a}, "
        "ops: {a: {for_each: l, llm: {user: '{{ item }}'}}}}"
    )
    one = explain(workflow, [{"l": 5}, {"l": ["x", "y"]}], 2)
    assert one.requests == 2
    assert any("could not be followed" in note for note in one.notes)


def prompts(user: str, inputs: str = "{q: str, x: str}") -> Workflow:
    return load(
        f"{{weft: 1, inputs: {inputs}, ops: {{a: {{llm: {{user: '{user}'}}}}}}, outputs: {{o: a}}}}"
    )


@pytest.mark.parametrize(
    ("user", "hint"),
    [
        ("{{ q }} " + RULES, True),
        (RULES + " {{ q }}", False),
        # The long column has one value in all rows.
        ("{{ q }} {{ x }}", True),
        ("{{ x }} {{ q }}", False),
        ("{{ q }} ok", False),
    ],
)
def test_hints_show_orders_that_share_more(user: str, hint: bool) -> None:
    workflow = prompts(user)
    rows = [{"q": f"question {number}", "x": RULES} for number in range(10)]
    one = explain(workflow, rows, len(rows))
    assert bool(one.hints) is hint
    if hint:
        assert one.hints[0].startswith("a: about ")
        assert "follow 'q'" in one.hints[0]
    # A hint changes no prompt.
    assert one.workflow.signature() == workflow.signature()


def test_the_text_is_a_tree_from_outputs_to_columns() -> None:
    shown = text(found(), width=200)
    lines = [line.strip("│├└─ ") for line in shown.splitlines()]
    assert lines[0] == "report"
    assert lines.index("output both") < next(
        at for at, line in enumerate(lines) if line.startswith("both  llm  requests 2")
    )
    assert any(
        line.startswith("one  llm for each of docs  requests 4 (1 merged)") for line in lines
    )
    assert "merge two into one: same body and inputs, saves 5 requests" in lines
    assert "try: the rounds depend on answers; at most 4" in lines
    assert any(line.startswith("2 rows, 8 requests after") for line in lines)
    assert "\x1b" not in shown


def test_an_empty_input_has_an_explanation() -> None:
    assert "0 rows, 0 requests" in text(explain(load(WORKFLOW), [], 0))
