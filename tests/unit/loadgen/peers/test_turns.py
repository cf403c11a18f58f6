"""Turns of recorded programs and their targets, by hand."""

from __future__ import annotations

from math import inf

import pytest
from weft_bench.peers.turns import (
    UserTurn,
    durations,
    slo_file,
    spans,
    tool_message,
    with_roles,
    with_targets,
)
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall
from weft_gateway.model.slo import Scope
from weft_gateway.policies.goals import begins_turn
from weft_gateway.slo import load

USER = {"role": "user", "content": "x"}


def program(*ends: bool) -> ReadyProgram:
    calls = [ReadyCall(TraceCall(prompt_ids=(1,), ends_turn=end), 1, 1) for end in ends]
    return ReadyProgram("p", tuple(calls), cut=False, trimmed=False)


def test_turn_ends_with_an_answer_without_tool_calls_or_with_the_last_call():
    assert spans(program(False, True, True, False, False)) == [(0, 1), (2, 2), (3, 4)]
    assert spans(program(False, False)) == [(0, 1)]
    assert spans(program(True)) == [(0, 0)]


def test_target_is_the_scaled_duration_alone_rounded_up_to_a_class():
    turns = with_targets(program(True, False, False), [1.0, 10.0], 2.0)
    assert [(t.first, t.last, t.alone_s) for t in turns] == [(0, 0, 1.0), (1, 2, 10.0)]
    for turn in turns:
        assert 2 * turn.alone_s <= turn.target_s < 2 * turn.alone_s * 1.12
    (short,) = with_targets(program(False), [0.001], 2.0)
    assert short.target_s == 0.25


def test_target_beyond_all_classes_is_refused():
    with pytest.raises(ValueError, match="a turn of p has a target of 2000 s"):
        with_targets(program(False), [1000.0], 2.0)


def test_gateway_reads_the_targets_from_the_file(tmp_path):
    file = tmp_path / "slo.yaml"
    file.write_text(slo_file())
    slos = load(str(file))
    for turn in with_targets(program(True, True, True), [0.1, 3.0, 100.0], 2.5):
        found = slos.classes[turn.slo]
        assert found.scope is Scope.TURN
        assert found.deadline_s == pytest.approx(turn.target_s, abs=0.001)
    assert slos.classes[slos.of("anyone").default].deadline_s == 0


def test_last_message_shows_the_gateway_where_a_turn_begins():
    answer, result = {"role": "assistant", "content": "y"}, tool_message("z")
    calls = [
        TraceCall(messages=(USER,)),
        TraceCall(messages=(USER, answer, result)),
        # The lengths of this prompt are rounded, so that it ends with an answer.
        TraceCall(messages=(USER, answer), ends_turn=True),
        TraceCall(messages=(USER, answer, USER), ends_turn=True),
        TraceCall(messages=(USER, answer)),
    ]
    found = with_roles(calls)
    assert [begins_turn({"messages": list(c.messages)}) for c in found] == [
        True, False, False, True, True,
    ]  # fmt: skip
    assert [c.messages for c in found[:2]] == [c.messages for c in calls[:2]]
    assert found[2].messages[:-1] == calls[2].messages


def test_duration_is_from_the_first_call_to_the_last_answer():
    turns = [UserTurn(0, 1, 1.0, 2.0, "a"), UserTurn(2, 3, 1.0, 2.0, "b")]
    times = {0: (1.0, 2.0), 1: (3.0, 4.5), 2: (6.0, 7.0)}
    assert durations(turns, times) == [(3.5, turns[0]), (inf, turns[1])]
