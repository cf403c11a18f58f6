"""Programs that have ended, and the source of their identity."""

from __future__ import annotations

from typing import Any

from weft_engine.wire import CallReport
from weft_gateway.model import Decision, Program, ProgramKey
from weft_gateway.telemetry.finished import finished, known_by, regrouped
from weft_gateway.telemetry.receipts import Receipt


def receipt(program: str, at_s: float, source: str = "x-session-id", **more: Any) -> Receipt:
    decision = Decision("r0", False, frozenset({"r0"}), "")
    made = Receipt(
        f"req{at_s}", f"c{at_s}", ProgramKey("t", program), "main", "", source, "chat", "m", at_s,
        decision, "r0", 1, None,
    )  # fmt: skip
    made.outcome, made.total_s = "ok", 2.0
    for name, value in more.items():
        setattr(made, name, value)
    return made


def used(service_s: float) -> CallReport:
    return CallReport("c", service_s, 0.25, prompt_tokens=40)


def test_ended_program_shows_the_sums_of_its_calls():
    calls = [receipt("p", 10.0, report=used(1.0)), receipt("p", 20.0, report=used(2.0))]
    session = finished(calls, ())["p"]
    assert (session["status"], session["known_by"]) == ("finished", "x-session-id")
    assert (session["calls"], session["errors"]) == (2, 0)
    assert (session["service_s"], session["waiting_s"], session["prompt_tokens"]) == (3.0, 0.5, 80)
    assert session["critical_path_s"] == 3.0
    assert (session["created_at"], session["last_call_completion"]) == (10.0, 22.0)
    assert session["replicas"] == ["r0"]


def test_figures_without_reports_are_unknown():
    session = finished([receipt("p", 10.0)], ())["p"]
    assert session["service_s"] is session["output_tokens"] is session["critical_path_s"] is None


def test_live_unnamed_deleted_and_refused_programs_are_left_out():
    calls = [
        receipt("alive", 1.0),
        receipt("running", 2.0, outcome=""),
        receipt("nameless", 3.0, source="none"),
        receipt("deleted", 4.0, listed=False),
        receipt("", 5.0, source="", outcome="refused"),
        receipt("refused", 6.0, outcome="refused"),
    ]
    assert finished(calls, {"alive"}) == {}


def test_refused_calls_are_not_counted():
    calls = [receipt("p", 1.0, report=used(1.0)), receipt("p", 2.0, outcome="refused")]
    session = finished(calls, ())["p"]
    assert (session["calls"], session["errors"], session["service_s"]) == (1, 0, 1.0)


def test_latest_call_determines_the_source():
    calls = [receipt("p", 1.0, source="lineage"), receipt("p", 2.0), receipt("q", 3.0, source="")]
    assert known_by(calls) == {"p": "x-session-id"}


def test_moved_calls_count_for_their_new_program():
    mine, other = ProgramKey("t", "mine"), ProgramKey("t", "other")
    calls = [
        receipt("mine", 10.0, report=used(1.0)),
        receipt("other", 20.0, report=used(2.0), counted=mine),
        receipt("mine", 30.0, report=used(4.0), counted=other, outcome="error"),
        receipt("other", 1.0, report=used(64.0), counted=mine),
    ]
    row = Program(mine, 10.0, 3.0, 3.0, 0.5, calls=2, calls_closed=2, prompt_tokens=80)
    found = regrouped(row, calls)
    assert (found.calls, found.calls_closed, found.errors) == (2, 2, 1)
    assert (found.service_s, found.waiting_s, found.prompt_tokens) == (5.0, 0.5, 80)
    assert found.critical_path_s == 5.0
    # The last call counted for an earlier row of that name, so nothing is subtracted here.
    assert regrouped(row, calls[:1]) is row
