"""Programs from the lines of journals: what prompts share, pauses, and what a call waits for."""

from __future__ import annotations

from typing import Any

from weft_bench.tune.recorded import Line, Recorded, latest, recorded


def line(program: str, at: float, took: float = 1.0, **other: Any) -> Line:
    known = {
        "n": int(1000 * at), "call": f"{program}@{at:g}", "model": "m", "kind": "k",
        "outcome": "ok", "prompt_tokens": 1000, "cached_tokens": 0, "output_tokens": 50,
        "deadline_s": None,
    }  # fmt: skip
    return Line(program=program, arrived_at=at, total_s=took, **(known | other))


def programs(*lines: Line) -> list[Recorded]:
    return recorded(latest(lines, 0))


def prompts(program: Recorded) -> list[list[tuple[str, int]]]:
    return [[(part.name, part.tokens) for part in one.call.parts] for one in program.ready.calls]


def test_a_prompt_begins_with_what_it_has_in_common_with_the_call_that_it_continues() -> None:
    first = line("p", 10.0, prompt_tokens=600)
    whole = line("p", 12.0, continues="p@10", common_tokens=600)
    edited = line("p", 14.0, continues="p@12", common_tokens=700, deadline_s=60.0)
    (one,) = programs(edited, first, whole)
    assert (one.ready.id, one.arrival_s, one.deadline_s) == ("p", 10.0, 60.0)
    assert prompts(one) == [
        [("p@10", 600)],
        [("p@10", 600), ("p@12", 400)],
        [("p@10", 600), ("p@12", 100), ("p@14", 300)],
    ]
    # The engine had the answer, too: prompts contain it as it was generated.
    (one,) = programs(
        first, line("p", 12.0, continues="p@10", common_tokens=600, cached_tokens=640)
    )
    assert prompts(one)[1] == [("p@10", 600), ("answer/p@10", 50), ("p@12", 350)]
    assert one.ready.calls[0].call.answer == "answer/p@10"


def test_the_first_prompt_of_a_program_shares_blocks_with_other_programs() -> None:
    marks = {"blocks": ("a", "b", "c"), "block_tokens": 300}
    one, two, three = programs(
        line("p", 1.0, **marks),
        line("q", 2.0, **{**marks, "blocks": ("a", "b", "x")}),
        line("r", 3.0, cached_tokens=160),
    )
    assert prompts(two) == [[("p@1", 600), ("q@2", 400)]]
    # Without blocks, cached tokens show what was shared.
    assert prompts(three) == [[("kind/k", 160), ("r@3", 840)]]
    assert prompts(one) == [[("p@1", 1000)]]


def test_a_call_waits_for_its_thread_and_for_threads_that_began_in_between() -> None:
    (one,) = programs(
        line("p", 10.0, thread="main"),
        line("p", 11.5, thread="x"),
        line("p", 11.5, 4.0, call="y", thread="y"),
        line("p", 13.0, thread="x"),
        line("p", 17.0, thread="main"),
    )
    calls = [ready.call for ready in one.ready.calls]
    assert [call.after for call in calls] == [(), (0,), (0,), (1,), (1, 2, 3)]
    assert [call.gap_s for call in calls] == [0.5, 0.5, 1.5, 0.0, 0.0]


def test_calls_of_one_thread_that_run_beside_each_other_are_joined() -> None:
    (one,) = programs(
        line("p", 10.0), line("p", 10.5, 1.0, call="beside"), line("p", 13.0, call="later")
    )
    calls = [ready.call for ready in one.ready.calls]
    assert [call.after for call in calls] == [(), (), (0, 1)]
    # The pause is after the answer that ended last.
    assert [call.gap_s for call in calls] == [0.0, 1.5, 0.0]


def test_the_latest_programs_are_whole() -> None:
    calls = [line(name, at) for at, name in enumerate("aabbcc")]
    assert latest(calls, 4).keys() == {"b", "c"}
    assert latest(calls, 1).keys() == {"c"}
    assert latest(calls, 0).keys() == {"a", "b", "c"}
