"""Pure functions that change a row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_gateway.model import Closing, Opening, Outcome, ProgramKey
from weft_gateway.programs import rules

KEY = ProgramKey("t", "p")
CALL = Opening(KEY, "c", "main", "r1", frozenset({"r0", "r1"}), True, 5.0)
USED = Closing(KEY, "c", 9.0, Outcome.OK, service_s=2.0, waiting_s=1.0, output_tokens=7)


@pytest.mark.parametrize(
    ("home", "eligible", "sticky", "settled"),
    [
        ("r0", {"r0", "r1"}, True, ("r0", "r0")),  # Algorithm 2, line 6
        ("", {"r0", "r1"}, True, ("r1", "r1")),  # lines 9 and 10
        ("r0", {"r1"}, True, ("r1", "r1")),  # the home is not eligible
        ("r0", {"r0", "r1"}, False, ("r1", "r0")),  # line 3
        ("", {"r0", "r1"}, False, ("r1", "")),
    ],
)
def test_replica_and_home_follow_algorithm_2(home, eligible, sticky, settled):
    row = replace(rules.fresh(KEY, 1.0, False), home=home)
    call = replace(CALL, eligible=frozenset(eligible), sticky=sticky)
    assert rules.settle(row, call) == settled


def test_fresh_row_has_an_arrival_and_no_calls():
    row = rules.fresh(KEY, 3.0, ephemeral=True)
    assert (row.arrival_s, row.last_arrival_s, row.calls, row.ephemeral) == (3.0, 0.0, 0, True)


def test_opening_adds_a_thread_to_a_copy_of_the_row():
    row = rules.fresh(KEY, 1.0, False)
    after, replica = rules.opened(row, CALL)
    assert replica == "r1"
    assert [(t.call, t.replica, t.arrival_s) for t in after.threads] == [("c", "r1", 5.0)]
    assert (after.calls, after.last_arrival_s) == (1, 5.0)
    assert row.threads == ()


def test_named_call_makes_a_program_permanent():
    row = rules.fresh(KEY, 1.0, ephemeral=True)
    assert not rules.opened(row, CALL)[0].ephemeral
    assert rules.opened(row, replace(CALL, ephemeral=True))[0].ephemeral


def test_critical_path_grows_from_its_value_at_open():
    row, _ = rules.opened(replace(rules.fresh(KEY, 1.0, False), critical_path_s=3.0), CALL)
    assert rules.closed(row, USED, critical_path_at_open_s=3.0).critical_path_s == 5.0
    assert rules.closed(row, USED, critical_path_at_open_s=0.5).critical_path_s == 3.0


def test_instants_never_decrease():
    row, _ = rules.opened(replace(rules.fresh(KEY, 1.0, False), last_arrival_s=8.0), CALL)
    assert row.last_arrival_s == 8.0
    late = replace(row, last_completion_s=20.0)
    assert rules.closed(late, USED, 0.0).last_completion_s == 20.0


@pytest.mark.parametrize(
    ("outcome", "errors"), [(Outcome.OK, 0), (Outcome.ERROR, 1), (Outcome.ABORTED, 0)]
)
def test_only_errors_count_as_errors(outcome, errors):
    row, _ = rules.opened(rules.fresh(KEY, 1.0, False), CALL)
    assert rules.closed(row, replace(USED, outcome=outcome), 0.0).errors == errors


def test_only_idle_ephemeral_or_ended_programs_are_removed():
    row = rules.fresh(KEY, 1.0, False)
    busy, _ = rules.opened(row, CALL)
    assert not rules.goes(row)
    assert rules.goes(replace(row, ended=True))
    assert rules.goes(replace(row, ephemeral=True))
    assert not rules.goes(replace(busy, ended=True))


def test_violations_name_each_fault_of_a_row():
    row = rules.fresh(KEY, 1.0, False)
    assert rules.violations(row) == []
    assert rules.violations(replace(row, service_s=0.3, critical_path_s=0.1 + 0.2)) == []
    for fault, word in (
        ({"calls": 1}, "opened"),
        ({"waiting_s": -1.0}, "waiting_s"),
        ({"waiting_s": float("nan")}, "waiting_s"),
        ({"critical_path_s": 1.0}, "critical path"),
        ({"ephemeral": True}, "ephemeral"),
        ({"ended": True}, "ended"),
    ):
        assert any(word in found for found in rules.violations(replace(row, **fault)))
