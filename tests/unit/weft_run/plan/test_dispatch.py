"""The machine that runs workflows: order, merging, windows, memory and the end of runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from weft_run.io.budget import Budget
from weft_run.language.graph import (
    Format,
    InputType,
    Llm,
    Loop,
    Message,
    Operator,
    Python,
    Sql,
    Workflow,
    operator,
)
from weft_run.language.templates import Template
from weft_run.plan.commands import (
    ANY,
    Abort,
    Command,
    Failure,
    Finish,
    Read,
    RowMajor,
    RunTool,
    Send,
    Turn,
    Usage,
    Work,
    WriteRow,
)
from weft_run.plan.dispatch import Dispatch


def llm(text: str, temperature: float = 1) -> Llm:
    return Llm((Message("user", Template.parse(text)),), parameters={"temperature": temperature})


def workflow(*operators: Operator) -> Workflow:
    inputs = {"q": InputType.STR, "docs": InputType.LIST}
    return Workflow("w", "m", inputs, operators, {"out": operators[-1].name})


def machine(*operators: Operator, slots: int = 10, **options: Any) -> Dispatch:
    made = Dispatch(workflow(*operators), {ANY: slots}, **options)
    assert [type(one) for one in made.start()] == [Read]
    return made


def row(q: str = "q", docs: Iterable[str] = ()) -> dict[str, Any]:
    return {"q": q, "docs": list(docs)}


def works(commands: list[Command]) -> list[Work]:
    return [one.work for one in commands if isinstance(one, Send | RunTool)]


def prompts(commands: list[Command]) -> list[str]:
    return [work.request.messages[0][1] for work in works(commands)]  # type: ignore[union-attr]


def outputs(commands: list[Command]) -> list[Any]:
    return [one.row.outputs["out"] for one in commands if isinstance(one, WriteRow)]


def test_items_do_not_wait_for_each_other() -> None:
    facts = operator("facts", llm("{{ item }}"), for_each="docs")
    clean = operator("clean", llm("clean {{ item }}"), for_each="facts")
    run = machine(facts, clean, operator("all", llm("{{ clean }}")))
    first, second = works(run.rows([(0, row(docs=["a", "b"]))], last=True))
    after = run.succeeded(second.number, "B")
    assert prompts(after) == ["clean B"]
    after_both = run.succeeded(works(after)[0].number, "B!")
    assert not works(after_both)
    cleaned = run.succeeded(first.number, "A")
    assert prompts(cleaned) == ["clean A"]
    assert prompts(run.succeeded(works(cleaned)[0].number, "A!")) == ['["A!", "B!"]']


def test_a_tool_with_an_effect_waits_for_all_items() -> None:
    facts = operator("facts", llm("{{ item }}"), for_each="docs")
    run = machine(facts, operator("post", Python("m:f"), for_each="facts"))
    first, second = works(run.rows([(0, row(docs=["a", "b"]))], last=True))
    assert not works(run.succeeded(second.number, "B"))
    assert len(works(run.succeeded(first.number, "A"))) == 2


def test_the_error_is_that_of_the_first_item() -> None:
    facts = operator("facts", llm("{{ item }}"), for_each="docs")
    bad = operator("bad", Format(Template.parse("{{ item.none }}")), for_each="facts")
    run = machine(facts, bad)
    first, second = works(run.rows([(0, row(docs=["a", "b"]))], last=True))
    assert run.succeeded(second.number, "B") == []
    ended = run.succeeded(first.number, "A")[0]
    assert isinstance(ended, WriteRow)
    assert ended.row.error is not None
    assert ended.row.error.operator == "bad[0]"


def test_rows_do_not_wait_for_each_other() -> None:
    run = machine(operator("a", llm("{{ q }}")), operator("b", llm("{{ a }}")))
    calls = works(run.rows([(0, row("x")), (1, row("y"))], last=True))
    assert prompts(run.succeeded(calls[1].number, "Y")) == ["Y"]


def test_calls_are_sent_by_turn_within_the_window() -> None:
    class Backwards(RowMajor):
        def turn(self, operator: str, row: int) -> Turn:
            return (-row,)

        def replica(self, operator: str, row: int) -> str:
            return ANY

    run = machine(operator("a", llm("{{ q }}")), slots=2, plan=Backwards())
    begun = run.rows([(n, row(f"q{n}")) for n in range(5)], last=True)
    assert prompts(begun) == ["q4", "q3"]
    assert prompts(run.succeeded(works(begun)[0].number, "")) == ["q2"]
    assert prompts(run.credit(ANY, 4)) == ["q1", "q0"]


def test_calls_prefer_their_replica_and_idle_replicas_take_others() -> None:
    class Odd(RowMajor):
        def turn(self, operator: str, row: int) -> float:
            return 0.0

        def replica(self, operator: str, row: int) -> str:
            return f"r{row % 2}"

    run = Dispatch(workflow(operator("a", llm("{{ q }}"))), {"r0": 2, "r1": 2}, plan=Odd())
    run.start()
    begun = run.rows([(n, row(f"q{n}")) for n in (0, 1, 2, 4)], last=True)
    assert {work.row: work.window for work in works(begun)} == {0: "r0", 2: "r0", 1: "r1", 4: "r1"}


def test_a_free_slot_takes_no_call_that_another_window_can_send() -> None:
    run = Dispatch(
        workflow(operator("a", llm("{{ q }}"))), {"r0": 9, "r1": 1}, plan=RowMajor(["r0", "r1"])
    )
    run.start()
    begun = run.rows([(n, row(f"q{n}")) for n in range(6)], last=True)
    assert {work.row: work.window for work in works(begun)} == {
        0: "r0",
        2: "r0",
        4: "r0",
        1: "r1",
        3: "r0",
        5: "r0",
    }


def test_greedy_calls_merge_in_flight_and_after() -> None:
    run = machine(operator("a", llm("{{ q }}", 0)), slots=1)
    (call,) = works(run.rows([(0, row("x")), (1, row("x")), (2, row("x"))], last=False))
    # Rows 1 and 2 wait for credit; with credit they join the call.
    assert not works(run.credit(ANY, 3))
    after = run.succeeded(call.number, "answer", Usage(3, 1, 2))
    assert outputs(after) == ["answer"] * 3
    later = run.rows([(3, row("x"))], last=True)
    assert outputs(later) == ["answer"]
    assert later[-1] == Finish("done")
    counts = run.counts["a"]
    assert (counts.calls, counts.merged, counts.cached, counts.done) == (1, 2, 1, 4)
    assert counts.usage == Usage(3, 1, 2)


def test_sampled_calls_never_merge() -> None:
    run = machine(operator("a", llm("{{ q }}", 0.7)))
    assert len(works(run.rows([(0, row("x")), (1, row("x"))], last=True))) == 2


def test_a_value_that_depends_on_the_time_is_not_shared() -> None:
    run = machine(operator("a", Sql("db", Template.parse("SELECT now()"))))
    (first,) = works(run.rows([(0, row()), (1, row())], last=True))
    after = run.succeeded(first.number, [{"t": 1}], repeatable=False)
    assert outputs(after) == [[{"t": 1}]]
    (second,) = works(after)
    assert not second.shared
    assert outputs(run.succeeded(second.number, [{"t": 2}])) == [[{"t": 2}]]


def test_reads_of_a_connection_that_is_written_do_not_merge() -> None:
    read = operator("a", Sql("db", Template.parse("SELECT 1")))
    write = operator("b", Sql("db", Template.parse("DELETE FROM t"), write=True))
    run = machine(read, write)
    begun = works(run.rows([(0, row()), (1, row())], last=True))
    assert len(begun) == 4
    assert {(work.key, work.safe) for work in begun} == {("a", True), ("b", False)}


def test_an_error_is_of_all_rows_that_wait_for_the_request() -> None:
    run = machine(operator("a", llm("{{ q }}", 0)), open_rows=2)
    (call,) = works(run.rows([(0, row("x")), (1, row("x"))], last=False))
    after = run.failed(call.number, Failure("timeout", "slow", 3))
    errors = [one.row.error for one in after if isinstance(one, WriteRow)]
    assert [one.attempts for one in errors if one is not None] == [3, 3]
    assert not works(after)
    (counts,) = run.counts.values()
    assert (counts.failed, counts.calls, counts.merged) == (2, 1, 1)
    # A row that comes later makes the request again: the error may have passed.
    (again,) = works(run.rows([(2, row("x"))], last=True))
    assert outputs(run.succeeded(again.number, "late")) == ["late"]


def test_a_failed_round_aborts_its_later_calls() -> None:
    a, b = operator("a", llm("a")), operator("b", llm("b"))
    loop = operator("loop", Loop((a, b), Template.parse("{{ true }}"), 3), on_error="value")
    run = machine(loop)
    first, second = works(run.rows([(0, row())], last=True))
    after = run.failed(first.number, Failure("http_400", "bad"))
    assert [type(one) for one in after] == [Abort, WriteRow, Finish]
    assert after[0] == Abort(second.number)
    assert outputs(after) == [{"value": None, "error": "bad"}]


def test_nothing_starts_after_an_error() -> None:
    when = Template.parse("{{ item == 'b' or item.none }}")
    run = machine(operator("a", llm("{{ item }}"), for_each="docs", when=when))
    after = run.rows([(0, row(docs=["a", "b"]))], last=True)
    assert [type(one) for one in after] == [WriteRow, Finish]


def test_rows_are_read_as_they_are_needed() -> None:
    run = machine(operator("a", llm("{{ q }}")), slots=2, open_rows=4)
    begun = run.rows([(n, row(f"q{n}")) for n in range(4)], last=False)
    assert run.open_rows == 4
    assert not [one for one in begun if isinstance(one, Read)]
    after = run.succeeded(works(begun)[0].number, "")
    assert [one for one in after if isinstance(one, Read)] == [Read(1)]


@pytest.mark.slow
def test_long_chains_need_no_recursion() -> None:
    chain = [operator("o0", llm("{{ q }}"))]
    for number in range(1, 3000):
        body = Format(Template.parse(f"{{{{ o{number - 1} }}}}"))
        chain.append(operator(f"o{number}", body))
    run = machine(*chain)
    (call,) = works(run.rows([(0, row())], last=True))
    assert outputs(run.succeeded(call.number, "a")) == ["a"]


def test_the_budget_stops_the_run() -> None:
    budget = Budget(tokens=500)
    text = operator(
        "a", Llm((Message("user", Template.parse("{{ q }}")),), "", {"max_tokens": 200})
    )
    run = machine(text, gate=budget)
    begun = run.rows([(n, row(f"q{n}")) for n in range(9)], last=True)
    assert len(works(begun)) == 2
    after = run.succeeded(works(begun)[0].number, "x", Usage(150, 0, 150))
    assert not works(after)
    ended = run.succeeded(works(begun)[1].number, "x", Usage(100, 0, 50))
    assert ended[-1] == Finish("tokens")
    assert budget.used == 450


def test_failed_rows_stop_the_run() -> None:
    run = machine(operator("a", llm("{{ q }}")), gate=Budget(errors=0))
    calls = works(run.rows([(0, row()), (1, row())], last=True))
    after = run.failed(calls[0].number, Failure("http_400", "bad"))
    assert after[-2:] == [Abort(calls[1].number), Finish("errors")]
    assert run.succeeded(calls[1].number, "late") == []


def test_cancel_aborts_calls_and_writes_nothing_more() -> None:
    run = machine(operator("a", llm("{{ q }}")))
    (call,) = works(run.rows([(0, row())], last=False))
    assert run.cancel() == [Abort(call.number), Finish("cancelled")]
    assert run.cancel() == []
    assert run.rows([(1, row())], last=True) == []


@pytest.mark.parametrize("bytes_", [0, 100])
def test_the_cache_is_bounded(bytes_: int) -> None:
    run = machine(operator("a", llm("{{ q }}", 0)), cache_bytes=bytes_)
    (call,) = works(run.rows([(0, row("x"))], last=False))
    run.succeeded(call.number, "answer")
    assert len(works(run.rows([(1, row("x"))], last=True))) == 1
