"""Calls that tools ask for while they run: merging, places, and the end of the tool."""

from __future__ import annotations

from typing import Any

from weft_run.language.langgraph import from_graph
from weft_run.language.requests import ChatRequest
from weft_run.plan.commands import (
    ANY,
    Abort,
    Command,
    Failure,
    Finish,
    Reply,
    RunTool,
    Send,
    Usage,
    Work,
    WriteRow,
)
from weft_run.plan.dispatch import Dispatch


def request(text: str, temperature: float = 0) -> ChatRequest:
    return ChatRequest((("user", f'{{"content":"{text}"}}'),), "m", {"temperature": temperature})


def works(commands: list[Command]) -> list[Work]:
    return [one.work for one in commands if isinstance(one, Send | RunTool)]


def replies(commands: list[Command]) -> list[Reply]:
    return [one for one in commands if isinstance(one, Reply)]


def scene(rows: int = 2, slots: int = 10, **options: Any) -> tuple[Dispatch, list[int]]:
    run = Dispatch(from_graph("m:g", ["q"]), {ANY: slots}, **options)
    run.start()
    tools = works(run.rows([(n, {"q": n}) for n in range(rows)], last=True))
    assert all(one.safe and not one.shared for one in tools)
    return run, [one.number for one in tools]


def test_equal_calls_of_rows_are_made_once() -> None:
    run, (first, second) = scene()
    (call,) = works(run.asked(first, 7, "judge", request("x")))
    assert (call.shared, call.attempts, call.operator) == (True, 3, "graph.judge")
    assert run.asked(second, 8, "judge", request("x")) == []
    after = run.succeeded(call.number, {"choices": []}, Usage(2, 0, 1))
    assert after == [Reply(7, {"choices": []}), Reply(8, {"choices": []})]
    assert run.asked(second, 9, "judge", request("x")) == [Reply(9, {"choices": []})]
    counts = run.counts["graph.judge"]
    assert (counts.calls, counts.merged, counts.cached, counts.done) == (1, 1, 1, 3)
    assert [type(one) for one in run.succeeded(first, {})] == [WriteRow]
    assert run.succeeded(second, {})[-1] == Finish("done")


def test_sampled_calls_are_never_merged_and_have_places_that_last() -> None:
    def places(texts: list[str]) -> dict[str, set[str]]:
        run, (tool,) = scene(1)
        found: dict[str, set[str]] = {}
        for ask, text in enumerate(texts):
            (work,) = works(run.asked(tool, ask, "a", request(text, 1)))
            assert not work.shared
            found.setdefault(text, set()).add(work.key)
        return found

    keys = places(["x", "x", "y"])
    assert [len(keys["x"]), len(keys["y"])] == [2, 1]
    assert places(["y", "x", "x"]) == keys


def test_calls_wait_for_a_window() -> None:
    run, (first, second) = scene(slots=1)
    (call,) = works(run.asked(second, 1, "a", request("x")))
    assert run.asked(second, 2, "a", request("y")) == []
    assert run.asked(first, 3, "a", request("z")) == []
    after = run.succeeded(call.number, {})
    # The earlier row goes first.
    assert [one.row for one in works(after)] == [0]


def test_an_error_is_a_reply() -> None:
    run, (first, second) = scene()
    (call,) = works(run.asked(first, 1, "a", request("x")))
    run.asked(second, 2, "a", request("x"))
    bad = Failure("http_400", "bad")
    assert run.failed(call.number, bad) == [Reply(1, failure=bad), Reply(2, failure=bad)]


def test_calls_end_with_their_tool() -> None:
    run, (first, second) = scene(slots=2)
    (shared,) = works(run.asked(first, 1, "a", request("x")))
    run.asked(second, 2, "a", request("x"))
    (alone,) = works(run.asked(first, 3, "a", request("y")))
    assert run.asked(first, 4, "a", request("z")) == []
    after = run.failed(first, Failure("python", "bad"))
    # The other row needs one of them; that which waits is never sent.
    assert [one for one in after if isinstance(one, Abort)] == [Abort(alone.number)]
    assert {one.ask for one in replies(after) if one.failure} == {1, 3, 4}
    assert not works(run.failed(alone.number, Failure("aborted", "")))
    assert replies(run.succeeded(shared.number, {})) == [Reply(2, {})]


def test_a_run_that_is_over_makes_no_calls() -> None:
    run, (first, _) = scene()
    run.cancel()
    (reply,) = replies(run.asked(first, 1, "a", request("x")))
    assert reply.failure is not None
    assert reply.failure.code == "aborted"
