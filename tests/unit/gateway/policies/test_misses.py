"""Why a unit missed its target."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_engine.wire import CallReport
from weft_gateway.model.slo import CallBudget, Scope
from weft_gateway.policies.misses import Miss, Overruns

# Predicted: 2 s of prefill and 3 s of answer.
BUDGET = CallBudget("c", Scope.PROGRAM, 90.0, 0.0, 60.0, 20.0, 5.0, 2.0, 3.0, 2, False)


@pytest.mark.parametrize(
    ("report", "first_byte_s", "cause"),
    [
        (CallReport("c", waiting_s=27.0), 28.0, Miss.QUEUE),
        (CallReport("c", waiting_s=27.0, memory_wait_s=26.0), 28.0, Miss.MEMORY),
        (CallReport("c", waiting_s=1.0), 29.0, Miss.PREFILL),
        (CallReport("c", waiting_s=1.0), 3.0, Miss.ANSWER),
        # Without a stream, the first byte comes at the end, and tells nothing about the prefill.
        (CallReport("c", waiting_s=1.0), None, Miss.ANSWER),
    ],
)
def test_longest_overrun_is_the_cause(
    report: CallReport, first_byte_s: float | None, cause: Miss
) -> None:
    overruns = Overruns()
    overruns.add(BUDGET, report, first_byte_s, 30.0)
    assert overruns.cause(5.0) is cause


def test_client_is_the_cause_only_if_the_calls_alone_are_not() -> None:
    overruns = Overruns(queue_s=4.0, client_s=60.0)
    assert overruns.cause(4.0) is Miss.QUEUE
    assert overruns.cause(5.0) is Miss.CLIENT
    assert overruns.cause(65.0) is Miss.QUEUE


def test_path_that_did_not_fit_at_first_misses_by_its_deadline() -> None:
    assert Overruns(late=True, queue_s=9.0).cause(1.0) is Miss.DEADLINE


def test_nothing_is_known_without_predictions() -> None:
    overruns = Overruns()
    unknown = CallBudget("c", Scope.CALL, 9.0, 0.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0, False)
    overruns.add(unknown, CallReport("c"), 3.0, 30.0)
    assert overruns.cause(21.0) is Miss.UNKNOWN


def test_hold_is_the_cause_if_the_path_had_fitted_without_it() -> None:
    """5 s of path: 3 s are left after the hold."""
    held = replace(BUDGET, left_s=3.0, path_s=5.0, late=True)
    for held_s, cause in ((4.0, Miss.HELD), (1.0, Miss.DEADLINE), (0.0, Miss.DEADLINE)):
        overruns = Overruns(queue_s=0.5)
        overruns.first(held, held_s)
        assert overruns.cause(1.0) is cause
    # The path fits even after the hold, and the queue takes longer.
    overruns = Overruns(queue_s=9.0)
    overruns.first(BUDGET, 4.0)
    assert overruns.cause(1.0) is Miss.QUEUE
