"""Threads and critical paths of receipts."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.wire import CallReport
from weft_gateway.model import Decision, Opening, Outcome, ProgramKey
from weft_gateway.model.program import Closing
from weft_gateway.programs import rules
from weft_gateway.telemetry.receipts import Receipt
from weft_gateway.telemetry.threads import MAX_SHOWN, critical_path, threads_of, to_json

KEY = ProgramKey("t", "p")
PLACE = Decision("r0", False, frozenset({"r0"}), "home", {}, {})


def call(name: str, at: float, took: float | None, service=0.0, thread="main", **more) -> Receipt:
    """Return a receipt. took: None while the call is in flight."""
    receipt = Receipt(
        name, name, KEY, thread, more.pop("parent", ""), "none", "chat", "m", at, PLACE, "r0", 1,
        None, **more,
    )  # fmt: skip
    if took is not None:
        receipt.total_s, receipt.outcome = took, more.get("outcome", "ok")
        receipt.report = CallReport(name, service_s=service, waiting_s=0.25)
    return receipt


def test_a_fork_and_its_join():
    receipts = [
        call("a", 1.0, 2.0, 1.0),
        call("b", 4.0, 3.0, 2.0, thread="left", parent="main"),
        call("c", 4.0, 1.0, 0.5, thread="right", parent="main", outcome="error"),
        call("d", 6.0, 0.5, 0.5, thread="right", parent="main"),
        call("e", 8.0, 1.0, 1.0, joined=("left", "right", "unknown")),
        call("f", 10.0, None, thread="left", parent="main"),
    ]
    main, left, right = threads_of(receipts)
    assert (main.calls, main.first_s, main.last_s, main.service_s) == (2, 1.0, 8.0, 2.0)
    assert (main.parent, main.ended, main.ended_s) == ("", "ok", 9.0)
    assert (left.parent, left.ended, left.ended_s, left.calls) == ("main", "", None, 2)
    assert (right.ended, right.ended_s, right.errors, right.waiting_s) == ("ok", 6.5, 1, 0.5)
    assert [list(thread.joined_by) for thread in (main, left, right)] == [[], ["main"], ["main"]]
    seconds, path = critical_path(receipts)
    assert (seconds, [one.call for one in path]) == (4.0, ["a", "b", "e"])
    shown = json.loads(json.dumps(to_json(receipts)))
    assert shown["critical_path"] == {
        "service_s": 4.0, "requests": ["a", "b", "e"], "requests_left_out": 0,
    }  # fmt: skip
    assert [thread["ended"] for thread in shown["threads"]] == ["ok", None, "ok"]


def test_shown_threads_are_limited():
    receipts = [call(f"c{n}", float(n), 0.5, 1.0, thread=f"t{n}") for n in range(MAX_SHOWN + 44)]
    shown = to_json(receipts)
    assert len(shown["threads"]) == len(shown["critical_path"]["requests"]) == MAX_SHOWN
    assert shown["threads_left_out"] == shown["critical_path"]["requests_left_out"] == 44
    assert shown["threads"][-1]["thread"] == f"t{MAX_SHOWN + 43}"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.floats(0, 5)), max_size=25),
)
def test_critical_path_equals_that_of_the_process_table(drawn):
    """Apply the table's rules to the same calls in chronological order."""
    receipts = [
        call(f"c{n}", float(at), float(took), service)
        for n, (at, took, service) in enumerate(sorted(drawn))
    ]
    # At the same instant, ends precede starts.
    events = [(one.arrived_s + one.total_s, 0, n) for n, one in enumerate(receipts)]
    events += [(one.arrived_s, 1, n) for n, one in enumerate(receipts)]
    row, opened = rules.fresh(KEY, 0.0, ephemeral=False), {}
    for now, opens, number in sorted(events):
        one = receipts[number]
        if opens:
            opened[number] = row.critical_path_s
            asked = Opening(KEY, one.call, "main", "r0", frozenset(), False, now)
            row, _ = rules.opened(row, asked)
        else:
            used = Closing(KEY, one.call, now, Outcome.OK, one.report.service_s)
            row = rules.closed(row, used, opened[number])
    seconds, path = critical_path(receipts)
    assert seconds == pytest.approx(row.critical_path_s)
    assert sum(one.report.service_s for one in path) == pytest.approx(seconds)
    for one, after in pairwise(path):
        assert one.arrived_s + one.total_s <= after.arrived_s
