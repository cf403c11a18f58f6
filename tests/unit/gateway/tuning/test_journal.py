"""The journal of calls: shapes without texts, and the ends of programs."""

from __future__ import annotations

from typing import Any

import msgspec
from weft_engine.wire import CallReport
from weft_gateway.calls.call import Call, Hooks
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.policies.costs import Costs, EngineCosts, StepCosts
from weft_gateway.programs.identity import MAIN_THREAD, Identity
from weft_gateway.tuning.journal import Journal

QUIET_S = 100.0


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


def journal() -> tuple[Journal, Clock]:
    clock, costs = Clock(), Costs()
    costs.set_engine("r", EngineCosts(StepCosts(0.01, 0.0, 1e-4)))
    return Journal(costs, QUIET_S, clock), clock


def play(one: Journal, program: str, call: str, prompt: int = 100, **report: Any) -> None:
    found = Call(call, BY_PATH["/v1/chat/completions"], [], b"", 0.0, Hooks())
    found.identity = Identity(ProgramKey("tenant", program), MAIN_THREAD, "", "session", False)
    found.model, found.replica, found.outcome = "secret-model", "r", Outcome.OK
    found.body = {"messages": [{"role": "system", "content": "a secret prompt"}]}
    one.opened(found)
    found.report = CallReport(call, prompt_tokens=prompt, output_tokens=10, **report)
    one.closed(found)


def test_the_journal_has_no_text() -> None:
    one, _ = journal()
    play(one, "secret program", "c1")
    one.program_ended(ProgramKey("tenant", "secret program"))
    [unit] = one.since(0.0)
    texts = [v for call in unit.calls for v in msgspec.structs.astuple(call) if isinstance(v, str)]
    assert texts == ["r"]
    assert b"secret" not in msgspec.json.encode(unit)


def test_a_program_ends_by_its_handle_or_without_calls() -> None:
    one, clock = journal()
    play(one, "a", "c1")
    play(one, "b", "c2")
    one.program_ended(ProgramKey("tenant", "a"))
    assert len(one.since(0.0)) == 1
    one.sweep()
    assert len(one.since(0.0)) == 1
    clock.now += QUIET_S + 1
    one.sweep()
    assert len(one.since(0.0)) == 2
    assert len(one.since(clock.now)) == 1
    assert one.counts() == {"running": 0, "units": 2, "calls": 2}


def test_earlier_contexts_count_as_cached_for_the_time_alone() -> None:
    one, _ = journal()
    play(one, "a", "c1", 1000)
    play(one, "a", "c2", 1500)
    first, second = one.running()
    assert (first.known, second.known) == (0, 1010)
    assert (first.resumed, second.resumed) == (False, True)
    assert first.alone_s > second.alone_s > 0


def test_failed_calls_and_calls_without_a_report_are_left_out() -> None:
    one, _ = journal()
    play(one, "a", "c1")
    found = Call("c2", BY_PATH["/v1/chat/completions"], [], b"", 0.0, Hooks())
    found.identity = Identity(ProgramKey("tenant", "a"), MAIN_THREAD, "", "session", False)
    one.opened(found)
    one.closed(found)
    assert len(list(one.running())) == 1


def test_the_journal_is_bounded() -> None:
    one, _ = journal()
    for number in range(5000):
        play(one, f"p{number}", f"c{number}")
    assert one.counts()["running"] == 4096
    for number in range(600):
        play(one, "long", f"d{number}")
    one.program_ended(ProgramKey("tenant", "long"))
    assert one.since(0.0) == []
    for number in range(9000):
        play(one, "x", f"e{number}")
        one.program_ended(ProgramKey("tenant", "x"))
    assert one.counts()["calls"] == 8192
