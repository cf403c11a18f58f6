"""Programs that have ended, and how each is known."""

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


def test_a_program_that_has_ended_is_shown_with_what_its_calls_have_used():
    calls = [receipt("p", 10.0, report=used(1.0)), receipt("p", 20.0, report=used(2.0))]
    session = finished(calls, ())["p"]
    assert (session["status"], session["known_by"]) == ("finished", "x-session-id")
    assert (session["calls"], session["errors"]) == (2, 0)
    assert (session["service_s"], session["waiting_s"], session["prompt_tokens"]) == (3.0, 0.5, 80)
    assert session["critical_path_s"] == 3.0
    assert (session["created_at"], session["last_call_completion"]) == (10.0, 22.0)
    assert session["replicas"] == ["r0"]


def test_what_no_engine_has_reported_is_not_known():
    session = finished([receipt("p", 10.0)], ())["p"]
    assert session["service_s"] is session["output_tokens"] is session["critical_path_s"] is None


def test_who_is_left_out():
    calls = [
        receipt("alive", 1.0),
        receipt("running", 2.0, outcome=""),
        receipt("nameless", 3.0, source="none"),
        receipt("deleted", 4.0, listed=False),
        receipt("", 5.0, source="", outcome="refused"),
        receipt("refused", 6.0, outcome="refused"),
    ]
    assert finished(calls, {"alive"}) == {}


def test_a_refused_call_is_no_call_of_its_session():
    calls = [receipt("p", 1.0, report=used(1.0)), receipt("p", 2.0, outcome="refused")]
    session = finished(calls, ())["p"]
    assert (session["calls"], session["errors"], session["service_s"]) == (1, 0, 1.0)


def test_the_latest_call_says_how_a_program_is_known():
    calls = [receipt("p", 1.0, source="lineage"), receipt("p", 2.0), receipt("q", 3.0, source="")]
    assert known_by(calls) == {"p": "x-session-id"}


def test_calls_that_are_another_programs_are_counted_there():
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
    # Counted for a row of that name which has gone, the last one is nothing to take away here.
    assert regrouped(row, calls[:1]) is row
