"""The sessions of a curve."""

from __future__ import annotations

import pytest
from support.sessions import sessions
from weft_bench.agents.scene import Scene
from weft_bench.workloads.schema import TraceError


def test_sessions_are_cut_to_calls_and_gaps_and_stay_undivided(tmp_path):
    scene = Scene(calls=2, data=str(sessions(tmp_path)))
    found = scene.sessions(0, 3, 131_072)
    assert [len(program.calls) for program in found] == [2, 2, 2]
    assert {call.call.gap_s for program in found for call in program.calls} == {10.0}
    assert [call.prompt_tokens for call in found[0].calls] == [640, 1280]


def test_as_many_sessions_fit_as_their_largest_contexts(tmp_path):
    scene = Scene(calls=2, replicas=2, data=str(sessions(tmp_path)))
    # 1,280 tokens and an answer of 20.
    assert scene.fit(3 * 1300, 131_072) == 6
    assert scene.fit(3 * 1300 + 324, 131_072) == 6
    assert scene.fit(1400, 131_072) == 2


def test_a_point_counts_the_same_sessions_for_all_systems():
    plain = Scene(per_place=2.0)
    assert [plain.point(times, 5).at_once for times in (0.5, 1, 2, 4, 8)] == [2, 5, 10, 20, 40]
    assert [plain.point(times, 5).counted for times in (0.5, 4)] == [12, 40]
    assert Scene(per_place=1.0).point(2, 5).counted == 10


def test_a_missing_workload_is_an_error(tmp_path):
    with pytest.raises(TraceError, match="--data"):
        Scene().sessions(0, 1, 1000)
    with pytest.raises(
        TraceError, match=r"has 0 sessions that fit 100 tokens, and this point needs 1"
    ):
        Scene(data=str(sessions(tmp_path))).sessions(0, 1, 100)
