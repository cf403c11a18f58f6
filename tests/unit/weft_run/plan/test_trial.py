"""Trials: counts of requests and merged requests, lengths of prompts, prefixes."""

from __future__ import annotations

from weft_run.language.graph import Workflow
from weft_run.language.spec import load
from weft_run.plan.trial import trial

LONG = "word " * 100


def ops(text: str, outputs: str = "{out: a}") -> Workflow:
    head = "weft: 1\ninputs: {q: str, docs: list}\nops:\n"
    lines = "".join(f"  {line}\n" for line in text.splitlines())
    return load(f"{head}{lines}outputs: {outputs}\n", "w.yaml")


def test_equal_requests_of_all_rows_are_merged() -> None:
    workflow = ops(
        "a: {llm: {user: '{{ q }}'}}\n"
        "b: {llm: {user: '{{ a }}'}}\n"
        "c: {llm: {user: '{{ q }}', temperature: 1}}\n"
        "d: {llm: {user: '{{ c }}'}}"
    )
    rows = [{"q": "x"}, {"q": "x"}, {"q": "y"}]
    found = trial(workflow, rows).counts
    assert {name: one.calls for name, one in found.items()} == {"a": 2, "b": 2, "c": 3, "d": 3}
    assert {one.done for one in found.values()} == {3}


def test_reads_of_a_written_database_are_not_merged() -> None:
    read = "a: {sql: 'select 1'}\n"
    write = "b: {sql: {query: 'insert into t values (1)', write: true}}"
    rows = [{"q": "x"}] * 2
    assert trial(ops(read), rows).counts["a"].calls == 1
    assert trial(ops(read + write), rows).counts["a"].calls == 2


def test_prompts_have_lengths_and_shared_prefixes() -> None:
    workflow = ops(f"a: {{llm: {{system: '{LONG}', user: '{{{{ q }}}}', max_tokens: 7}}}}")
    rows = [{"q": "x"}, {"q": "y"}, {"q": "x"}]
    one = trial(workflow, rows).counts["a"]
    assert (one.calls, one.usage.output) == (2, 14)
    assert 2 * len(LONG) // 4 < one.usage.prompt < 2 * len(LONG) // 4 + 60
    assert len(LONG) // 4 - 16 < one.usage.cached < len(LONG) // 4 + 16
    assert one.usage.cached % 16 == 0


def test_values_of_tools_are_stand_ins() -> None:
    workflow = ops(
        "rows: {sql: 'select 1'}\n"
        "parts: {python: 'm:f'}\n"
        "a: {for_each: parts, llm: {user: '{{ item.name }} {{ rows[0].total }}'}}\n"
        "loop: {loop: {max: 3, until: '{{ run.error is none }}'},"
        " body: {run: {http: 'u', on_error: value}}}"
    )
    found = trial(workflow, [{}])
    assert not found.errors
    assert found.counts["a"].done > 1
    assert found.counts["loop.run"].done == 1


def test_rows_that_end_early_are_counted() -> None:
    found = trial(ops("a: {format: '{{ q.x }}'}"), [{"q": "x"}] * 2)
    (count,) = found.errors.values()
    assert count == 2
