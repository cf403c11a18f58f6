"""Operators of workflows from HTTP."""

from __future__ import annotations

import pytest
from weft_gateway.runs.flow_check import load_allowed
from weft_gateway.runs.flow_rules import MOST_OPERATORS, Rules, refusals
from weft_run.language.check import WorkflowError
from weft_run.language.spec import load

RULES = Rules(
    {"shop": "/data/shop.db", "notes": "/data/notes.db"},
    frozenset({"notes"}),
    frozenset({"example.org:80", "example.org:443", "10.0.0.5:8000", "[::1]:80"}),
)


def found(operator: str, rules: Rules = RULES) -> list[str]:
    text = (
        f"weft: 1\ninputs: {{u: str}}\nops:\n  a:\n    {operator}\n  b: {{format: b}}\n"
        "outputs: {b: b}\n"
    )
    return refusals(load(text), rules, "w.yaml")


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("python: m:f", "python operators do not run over HTTP; use weft run"),
        ("{loop: {max: 1, until: '{{ c }}'}, body: {c: {python: m:f}}}", "c: python operators"),
        ("sql: {query: SELECT 1, connection: shpo}", "'shpo'; did you mean shop?"),
        ("sql: {query: DELETE FROM t, connection: shop, write: true}", "'shop' is read-only"),
        ("http: http://example.com/a", "example.com:80 is not allowed; did you mean example.org:"),
        ("http: http://Example.org:81/{{ u }}", "example.org:81 is not allowed"),
        ("http: https://u@10.0.0.5/", "10.0.0.5:443 is not allowed"),
        ("http: {url: 'http://example.org/', headers: {hOST: x}}", "the header 'hOST'"),
    ],
)
def test_a_refusal_has_place_and_reason(operator: str, reason: str) -> None:
    (message,) = found(operator)
    assert message.startswith("w.yaml:")
    assert reason in message


def test_a_workflow_has_a_limited_number_of_operators() -> None:
    loop = "  a0: {loop: {max: 1, until: '{{ true }}'}, body: {b: {branch: [{format: a}]}}}\n"

    def text(count: int, template: str) -> str:
        # The loop counts as three.
        lines = "".join(f"  a{number}: {{format: '{template}'}}\n" for number in range(3, count))
        return f"weft: 1\ninputs: {{u: str}}\nops:\n{loop}{lines}outputs: {{a: a0}}\n"

    assert load_allowed(text(MOST_OPERATORS, "a"), "w.yaml", RULES)
    # The number is checked first: to compile the templates takes long.
    with pytest.raises(WorkflowError) as error:
        load_allowed(text(MOST_OPERATORS + 1, "{{ u + }}"), "w.yaml", RULES)
    assert str(error.value) == "w.yaml:502:3: 501 operators; at most 500 are allowed"


@pytest.mark.parametrize(
    "operator",
    [
        "sql: {query: SELECT 1, connection: shop}",
        "sql: {query: DELETE FROM t, connection: notes, write: true}",
        "http: http://example.org",
        "http: https://EXAMPLE.org/{{ u }}",
        "http: http://10.0.0.5:8000/{{ u }}",
        "http: http://[::1]/",
        # The host is known only when the row runs.
        "http: http://example{{ u }}/",
        "http: '{{ u }}'",
        "llm: {user: a}",
    ],
)
def test_allowed_operators(operator: str) -> None:
    assert found(operator) == []


def test_nothing_is_allowed_without_settings() -> None:
    assert "none is configured" in found("sql: SELECT 1", Rules())[0]
    assert "no host is allowed" in found("http: '{{ u }}'", Rules())[0]
