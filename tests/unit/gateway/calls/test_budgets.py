"""Budgets of calls at their sending, and what the gateway learns for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_engine.wire import CallReport
from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import PREFILL, Call, Hooks, Placed
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.model import Decision, Outcome, Program, ProgramKey
from weft_gateway.model.hint import Hints
from weft_gateway.model.slo import Goal, Scope
from weft_gateway.policies.forecast import MIN_SAMPLES
from weft_gateway.policies.lateness import Cause
from weft_gateway.programs.identity import Identity

PLACED = Placed("r0", False, Decision("r0", False, frozenset(), "only"), 100, "", None)
NOW_S = 1000.0
BEGUN_S = 50.0


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0.0)


def clock(monkeypatch: pytest.MonkeyPatch, passed_s: float) -> None:
    """Stop the clocks, seconds after the calls' arrival."""
    monkeypatch.setattr("weft_gateway.calls.budgets.time", lambda: NOW_S + passed_s)
    monkeypatch.setattr("weft_gateway.calls.budgets.perf_counter", lambda: BEGUN_S + passed_s)


def call(
    program: str = "p", *, path_calls: int = 0, goal: Goal | None = None, system: str = "", **body
) -> Call:
    """An open call of a program whose unit began now, with a deadline of 60 s."""
    chat = BY_PATH["/v1/chat/completions"]
    key = ProgramKey("t", program)
    made = Call("call", chat, [], b"req", BEGUN_S, Hooks())
    made.identity = Identity(key, "main", "", "path", ephemeral=False)
    made.placed, made.model, made.replica = PLACED, "m", "r0"
    made.body = {"messages": [{"role": "system", "content": system}], **body}
    goal = goal or Goal("report", Scope.PROGRAM, 60.0, NOW_S, 0)
    made.program = Program(key, goal.begun_s, goal=goal, path_calls=path_calls)
    return made


def play(budgets: Budgets, program: str, calls: int, system: str = "") -> None:
    """A program with this many calls, one after another, each of 1 s."""
    for number in range(calls):
        one = call(program, path_calls=number, system=system)
        budgets.opened(one)
        one.outcome = Outcome.OK
        one.report = CallReport("call", service_s=1.0, prompt_tokens=100, output_tokens=number + 5)
        budgets.closed(one)
    assert budgets.ended(one.key)


def test_call_without_a_target_has_no_budget() -> None:
    plain = call(goal=Goal("batch", Scope.PROGRAM, 0.0, NOW_S))
    assert Budgets().of(plain) is None
    prefill = call()
    prefill.endpoint = PREFILL
    assert Budgets().of(prefill) is None


def test_first_program_gets_all_the_time_left() -> None:
    budgets, first = Budgets(), call()
    budgets.opened(first)
    found = budgets.of(first)
    assert found is not None
    assert (found.remaining, found.cost_s, found.late) == (0, 0.0, False)
    assert found.budget_s == 60.0


def test_later_calls_of_the_kind_leave_less_for_each() -> None:
    budgets = Budgets()
    for number in range(MIN_SAMPLES):
        play(budgets, f"p{number}", 4)
    for number in range(MIN_SAMPLES):
        play(budgets, f"other{number}", 1, system="another stage")
    parts = []
    for position in range(4):
        one = call("new", path_calls=position)
        budgets.opened(one)
        found = budgets.of(one)
        assert found is not None
        assert found.remaining == 3 - position
        parts.append(found.budget_s)
    assert parts == [pytest.approx(60 / n, rel=0.05) for n in (4, 3, 2, 1)]


def test_a_unit_that_uses_several_models_has_one_path() -> None:
    budgets = Budgets()

    def opened(program: str, number: int, system: str, model: str) -> Call:
        one = call(program, path_calls=number, system=system)
        one.model = model
        budgets.opened(one)
        return one

    for number in range(40):
        for position in range(20):
            opened(f"long-{number}", position, "long", "big")
        budgets.ended(ProgramKey("t", f"long-{number}"))
    for number in range(2 * MIN_SAMPLES):
        for position, model in enumerate(("big", "small", "small")):
            opened(f"short-{number}", position, "short", model)
        budgets.ended(ProgramKey("t", f"short-{number}"))
    found = []
    for position, model in enumerate(("big", "small", "small")):
        budget = budgets.of(opened("new", position, "short", model))
        assert budget is not None
        found.append(budget.remaining)
    assert found == [2, 1, 0]


def test_budget_has_the_predicted_path() -> None:
    budgets = Budgets()
    for number in range(MIN_SAMPLES):
        play(budgets, f"p{number}", 3)
    one = call("new", path_calls=1)
    budgets.opened(one)
    found = budgets.of(one)
    assert found is not None
    assert found.remaining == 1
    assert found.path_s == pytest.approx(2 * found.cost_s, rel=0.05)


def test_path_has_the_seconds_of_the_later_calls() -> None:
    """A short first call does not stand for the long ones after it."""
    budgets = Budgets()
    for number in range(2 * MIN_SAMPLES):
        for position, service_s in enumerate((1.0, 20.0, 20.0)):
            one = call(f"p{number}", path_calls=position, system=f"stage {position}")
            budgets.opened(one)
            one.budget = budgets.of(one)
            one.outcome = Outcome.OK
            one.report = CallReport("call", service_s=service_s, prompt_tokens=100, output_tokens=9)
            budgets.closed(one)
        budgets.ended(one.key)
    first = call("new", system="stage 0")
    budgets.opened(first)
    found = budgets.of(first)
    assert found is not None
    assert found.remaining == 2
    assert found.whole_s - found.cost_s == pytest.approx(40.0)
    assert found.whole_p90_s >= found.whole_s > found.path_s


def test_parallel_calls_count_once() -> None:
    """Siblings have the same position, and get the same budget."""
    budgets = Budgets()
    for number in range(MIN_SAMPLES):
        play(budgets, f"p{number}", 4)
    found = []
    for _ in range(3):
        one = call("new", path_calls=1)
        budgets.opened(one)
        found.append(budgets.of(one))
    assert [one.remaining for one in found if one is not None] == [2, 2, 2]


def test_budget_shrinks_until_the_call_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time in which the call was held, or sent to a replica that failed, is gone."""
    budgets, one = Budgets(), call()
    budgets.opened(one)
    found = []
    for passed_s in (0.0, 20.0, 70.0):
        clock(monkeypatch, passed_s)
        found.append(budgets.of(one))
    assert [one.budget_s for one in found if one] == [60.0, 40.0, 0.0]
    assert [one.late for one in found if one] == [False, False, True]


def test_calls_own_deadline_counts_from_its_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets, one = Budgets(), call(goal=Goal())
    one.hints = Hints(deadline_s=10.0)
    clock(monkeypatch, 4.0)
    found = budgets.of(one)
    assert found is not None
    assert found.scope is Scope.CALL
    assert found.budget_s == 6.0
    both = call()
    both.hints = Hints(deadline_s=10.0)
    part = budgets.of(both)
    assert part is not None
    assert part.budget_s == 6.0


def test_turn_counts_its_own_calls() -> None:
    budgets = Budgets()
    goal = Goal("chat", Scope.TURN, 60.0, NOW_S, 7)
    one = call(path_calls=7, goal=goal)
    budgets.opened(one)
    assert budgets.ended(one.key)
    assert not budgets.ended(one.key)
    # The next turn begins at its first call, too, and is given up for another one.
    later = [replace(goal, begun_s=goal.begun_s + n, begun_calls=7 + n) for n in (1, 2)]
    assert not budgets.opened(call(path_calls=8, goal=later[0]))
    assert budgets.opened(call(path_calls=9, goal=later[1]))
    assert budgets.ended(one.key)


def test_a_wrong_deadline_does_not_change_the_budget_of_another_program() -> None:
    with_liar, alone = Budgets(), Budgets()
    liar = call("liar", goal=Goal("", Scope.PROGRAM, 1e-9, NOW_S, 0))
    for budgets in (with_liar, alone):
        play(budgets, "p", 3)
    with_liar.opened(liar)
    assert with_liar.of(liar)
    honest = call("honest")
    found = []
    for budgets in (with_liar, alone):
        budgets.opened(honest)
        found.append(budgets.of(honest))
    first, second = found
    assert first is not None
    assert second is not None
    assert first.budget_s == second.budget_s


def stage(name: str, service_s: float) -> Call:
    made = call("of " + name, system=name)
    made.report = CallReport("call", service_s=service_s, prompt_tokens=100, output_tokens=10)
    made.outcome = Outcome.OK
    return made


def test_upper_forecast_follows_the_errors_of_the_stage() -> None:
    """Answers of one length take 1 s, or twice as long once in five calls."""
    budgets = Budgets()
    for number in range(40):
        one = stage("draft", 2.0 if number % 5 == 0 else 1.0)
        budgets.opened(one)
        one.budget = budgets.of(one)
        budgets.closed(one)
    found = budgets.of(stage("draft", 0.0))
    assert found is not None
    assert found.cost_s < 1.5
    assert found.p90_s == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize(("first_s", "never"), [(59.0, False), (61.0, True)])
def test_later_calls_know_whether_the_path_fitted_at_the_first_one(
    first_s: float, never: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets, lates = Budgets(), []
    for number, passed_s in enumerate((first_s, 62.0)):
        clock(monkeypatch, passed_s)
        one = call(path_calls=number)
        budgets.opened(one)
        one.budget = found = budgets.of(one)
        assert found is not None
        lates.append(found.cause)
        budgets.follow(one)
    assert lates == ([Cause.WORK] * 2 if never else [None, Cause.CLIENT])


def test_a_calls_own_deadline_has_no_earlier_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 3.0)
    one = call(path_calls=1, goal=Goal("step", Scope.CALL, 2.0, NOW_S))
    found = Budgets().of(one)
    assert found is not None
    assert (found.late, found.cause) == (True, Cause.WORK)


def test_time_between_calls_is_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = Budgets()
    for position, passed_s in enumerate((0.0, 30.0)):
        clock(monkeypatch, passed_s)
        one = call(path_calls=position)
        budgets.opened(one)
        one.budget = budgets.of(one)
        budgets.follow(one)
    unit = budgets.ended(call().key)
    assert unit is not None
    assert unit.overruns.client_s == 30.0
