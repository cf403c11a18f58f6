"""Figures of a play, compared with values computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_bench.peers.drive import Call, Script
from weft_bench.peers.outcome import Answer, jain, migrations, outcomes, recomputed, summarise
from weft_bench.peers.turns import UserTurn
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall


def script(calls: int, arrival_s: float = 1.0, alone_s: float = 2.0, long_gaps=False) -> Script:
    ready = tuple(ReadyCall(TraceCall(prompt_ids=(1,)), 1, 1) for _ in range(calls))
    program = ReadyProgram("p", ready, cut=False, trimmed=False)
    return Script(
        program, [b""] * calls, [()] * calls, [0.0] * calls, arrival_s, alone_s, long_gaps
    )


def answer(replica: int, cached: int, used_s: float = 0.5) -> Answer:
    return Answer(replica, 64, cached, 3, used_s)


def test_jain_is_one_for_equal_values_and_one_nth_for_a_single_one():
    assert jain([2.0, 2.0, 2.0]) == pytest.approx(1)
    assert jain([0.0, 0.0, 5.0]) == pytest.approx(1 / 3)
    assert jain([1.0, 3.0]) == pytest.approx(16 / 20)
    assert jain([]) == 0


def test_migration_is_a_call_at_another_replica_than_the_previous_one():
    assert migrations([0, 0, 1, 1, 0]) == 2
    assert migrations([2]) == migrations([]) == 0


def test_recomputed_tokens_are_known_but_not_cached():
    assert recomputed(64, 0, 0.5, 16) == 32
    assert recomputed(64, 32, 0.5, 16) == 0
    # More tokens were cached than this program had sent: another program's.
    assert recomputed(64, 48, 0.5, 16) == 0
    # The last token is always computed, together with its block.
    assert recomputed(64, 0, 1.0, 16) == 48
    assert recomputed(65, 0, 1.0, 16) == 64
    assert recomputed(5, 0, 0.0, 16) == 0


def test_calls_and_answers_are_joined_by_id():
    calls = [
        Call(0, 0, 1.0, 2.0, "a", 0.0),
        Call(0, 1, 2.0, 3.0, "b", 0.75),
        Call(0, 2, 3.0, 5.0, "c", 0.75),
    ]
    answers = {"a": answer(0, 0), "b": answer(1, 16), "c": answer(1, 48), "stranger": answer(2, 0)}
    (found,) = outcomes([script(3)], calls, answers, 16)
    assert found.completion_s == pytest.approx(4)
    assert found.slowdown == pytest.approx(2)
    assert (found.calls, found.followers, found.moves) == (3, 2, 1)
    assert (found.prompt_tokens, found.cached_tokens, found.recomputed_tokens) == (192, 64, 32)
    assert found.front_s == pytest.approx(4 - 1.5)
    assert (found.untold, found.errors) == (0, ())


def test_call_that_no_replica_reports_is_counted_but_no_migration():
    calls = [
        Call(0, 0, 1.0, 2.0, "a", 0.0),
        Call(0, 1, 2.0, 3.0, "lost", 0.0),
        Call(0, 2, 3.0, 4.0, "c", 0.0),
    ]
    (found,) = outcomes([script(3)], calls, {"a": answer(0, 0), "c": answer(0, 0)}, 16)
    assert (found.untold, found.moves, found.followers) == (1, 0, 1)


def test_unanswered_program_counts_only_as_an_error():
    calls = [Call(0, 0, 1.0, 1.5, "", 0.0, "500: broken"), Call(1, 0, 1.0, 3.0, "b", 0.0)]
    found = outcomes([script(1), script(1)], calls, {"b": answer(0, 0)}, 16)
    figures = summarise(found, 1.0)
    assert (figures["errors"], figures["programs"], figures["calls"]) == (1, 1, 1)
    assert figures["mean"] == pytest.approx(2)


def test_times_are_engine_seconds_except_the_fronts_time():
    calls = [Call(0, 0, 1.0, 3.0, "a", 0.0)]
    found = outcomes([script(1)], calls, {"a": answer(0, 48, used_s=1.9)}, 16)
    figures = summarise(found, 5.0)
    assert figures["mean"] == figures["p99"] == pytest.approx(10)
    assert figures["front_ms"] == pytest.approx(100)
    assert figures["slowdown"] == pytest.approx(1)
    assert figures["hit_rate"] == pytest.approx(0.75)


def test_figures_without_programs_are_zero():
    assert not any(summarise([], 1.0).values())


def test_attainment_counts_turns_with_errors_as_missed():
    turns = (UserTurn(0, 0, 1.0, 2.0, "a"), UserTurn(1, 1, 1.0, 2.0, "a"))
    one, other = replace(script(2), turns=turns), replace(script(2), turns=turns)
    calls = [
        Call(0, 0, 1.0, 2.75, "a", 0.0), Call(0, 1, 3.0, 5.5, "b", 0.0),
        Call(1, 0, 1.0, 2.25, "c", 0.0), Call(1, 1, 3.0, 3.5, "", 0.0, "500: broken"),
    ]  # fmt: skip
    figures = summarise(outcomes([one, other], calls, {}, 16), 1.0)
    assert (figures["turns"], figures["attained"]) == (4, 0.5)
    assert figures["turn_mean"] == pytest.approx((1.75 + 2.5 + 1.25) / 3)
    assert (figures["within_1.5"], figures["within_2.5"]) == (0.25, 0.75)


def test_programs_without_targets_have_no_figures_of_turns():
    assert "attained" not in summarise(outcomes([script(1)], [], {}, 16), 1.0)
