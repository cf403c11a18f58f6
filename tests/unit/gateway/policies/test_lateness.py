"""Why a unit is late."""

from __future__ import annotations

import pytest
from weft_engine.wire import CallReport
from weft_gateway.model.slo import CallBudget, Scope
from weft_gateway.policies.lateness import Cause, Overruns

# Predicted: 2 s of prefill and 3 s of answer.
BUDGET = CallBudget("c", Scope.PROGRAM, 90.0, 0.0, 60.0, 20.0, 5.0, 2.0, 3.0, 2, False)


@pytest.mark.parametrize(
    ("report", "first_byte_s", "cause"),
    [
        (CallReport("c", waiting_s=27.0), 28.0, Cause.WAITING),
        (CallReport("c", waiting_s=27.0, memory_wait_s=26.0), 28.0, Cause.WAITING),
        (CallReport("c", waiting_s=1.0), 29.0, Cause.WORK),
        (CallReport("c", waiting_s=1.0), 3.0, Cause.WORK),
        # Without a stream, the first byte comes at the end, and tells nothing about the prefill.
        (CallReport("c", waiting_s=1.0), None, Cause.WORK),
    ],
)
def test_longest_overrun_is_the_cause(
    report: CallReport, first_byte_s: float | None, cause: Cause
) -> None:
    overruns = Overruns()
    overruns.add(BUDGET, report, first_byte_s, 30.0)
    assert overruns.cause(5.0) is cause


def test_client_is_the_cause_only_if_the_calls_alone_are_not() -> None:
    overruns = Overruns(waiting_s=4.0, client_s=60.0)
    assert overruns.cause(4.0) is Cause.WAITING
    assert overruns.cause(5.0) is Cause.CLIENT
    assert overruns.cause(65.0) is Cause.WAITING


def test_path_that_did_not_fit_at_first_is_late_by_its_work() -> None:
    assert Overruns(late=True, waiting_s=9.0).cause(1.0) is Cause.WORK


def test_without_predictions_and_waits_all_is_work() -> None:
    overruns = Overruns()
    unknown = CallBudget("c", Scope.CALL, 9.0, 0.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0, False)
    overruns.add(unknown, CallReport("c"), 3.0, 30.0)
    assert overruns.cause(21.0) is Cause.WORK
