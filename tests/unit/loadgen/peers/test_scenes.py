"""The programs that all fronts get."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.peers import dialogues, replicas
from weft_bench.peers import scenes
from weft_bench.peers.scenes import (
    EMULATED_SCENES,
    GENERATED_SCENES,
    QUICK_SCENES,
    REAL_SCENES,
    LongGaps,
    Scene,
)
from weft_bench.peers.turns import spans
from weft_bench.workloads.schema import TraceError

SCENE = Scene("tau_airline", "tau_airline", programs=6, rate=2.0, calls=2, longest_gap_s=1.0)
NONE = LongGaps(0.0, 30.0, 15.0)


@pytest.fixture
def measured(monkeypatch):
    """Replaces what the engines measure."""
    monkeypatch.setattr(scenes, "ratio_of", lambda program, replicas: 4.0)
    monkeypatch.setattr(scenes, "alone_emulated", lambda replicas, ratio: lambda *_: ratio)
    monkeypatch.setattr(scenes, "alone_real", lambda replicas: lambda *_: 7.0)


@pytest.mark.usefixtures("measured")
def test_programs_are_bounded_and_equal_for_the_same_seed(tmp_path):
    data = dialogues(tmp_path, 8)
    one = scenes.cast(SCENE, data, 0, replicas(), NONE).scripts
    again = scenes.cast(SCENE, data, 0, replicas(), NONE).scripts
    other = scenes.cast(SCENE, data, 1, replicas(), NONE).scripts
    assert len(one) == 6
    assert {len(script.bodies) for script in one} == {2}
    assert [s.bodies for s in one] == [s.bodies for s in again]
    assert [s.arrival_s for s in one] == [s.arrival_s for s in again]
    assert [s.arrival_s for s in one] != [s.arrival_s for s in other]
    assert not any(script.long_gaps for script in one)
    assert json.loads(one[0].bodies[0])["model"] == "m"
    assert len(one[0].blocks[1]) > len(one[0].blocks[0]) > 0


@pytest.mark.usefixtures("measured")
def test_times_are_multiplied_by_the_dilation(tmp_path):
    data = dialogues(tmp_path, 8)
    slow = scenes.cast(SCENE, data, 0, replicas(1.0), NONE).scripts
    fast = scenes.cast(SCENE, data, 0, replicas(0.1), NONE).scripts
    for one, other in zip(slow, fast, strict=True):
        assert one.arrival_s == pytest.approx(10 * other.arrival_s)
        assert one.gaps_s == pytest.approx([10 * gap for gap in other.gaps_s])
        assert sum(one.gaps_s[:-1]) > 0
        assert max(one.gaps_s) <= SCENE.longest_gap_s


@pytest.mark.usefixtures("measured")
def test_share_of_programs_has_long_gaps_and_the_others_are_unchanged(tmp_path):
    data = dialogues(tmp_path, 8)
    plain = scenes.cast(SCENE, data, 0, replicas(1.0), NONE).scripts
    some = scenes.cast(SCENE, data, 0, replicas(1.0), LongGaps(0.5, 3.0, 2.0)).scripts
    assert sum(script.long_gaps for script in some) == 3
    for one, other in zip(plain, some, strict=True):
        times = 3.0 if other.long_gaps else 1.0
        assert other.gaps_s == pytest.approx([min(2.0, times * gap) for gap in one.gaps_s])
        assert other.bodies == one.bodies
        assert other.arrival_s == one.arrival_s


@pytest.mark.usefixtures("measured")
def test_program_without_gaps_has_no_long_gaps(tmp_path):
    scene = replace(SCENE, calls=1)
    found = scenes.cast(
        scene, dialogues(tmp_path, 8), 0, replicas(), LongGaps(1.0, 3.0, 2.0)
    ).scripts
    assert not any(script.long_gaps for script in found)


@pytest.mark.usefixtures("measured")
def test_too_few_programs_are_an_error(tmp_path):
    with pytest.raises(TraceError, match="5 programs"):
        scenes.cast(SCENE, dialogues(tmp_path, 5), 0, replicas(), NONE)


@pytest.mark.usefixtures("measured")
def test_programs_alone_are_computed_for_emulated_engines_and_measured_on_real_ones(tmp_path):
    data = dialogues(tmp_path, 8)
    for emulated, alone_s in ((True, 4.0), (False, 7.0)):
        found = scenes.cast(SCENE, data, 0, replicas(1.0, emulated=emulated), NONE).scripts
        assert {script.alone_s for script in found} == {alone_s}


@pytest.mark.usefixtures("measured")
def test_a_generated_query_is_one_turn_with_parallel_calls(tmp_path):
    (scene,) = GENERATED_SCENES
    programs, there = replace(scene, programs=3), replace(replicas(), context=40_000)
    found = scenes.cast(programs, tmp_path, 0, there, NONE).scripts
    again = scenes.cast(programs, tmp_path, 0, there, NONE).scripts
    assert [script.bodies for script in found] == [script.bodies for script in again]
    needs = [ready.call.needs(n) for one in found for n, ready in enumerate(one.program.calls)]
    assert max(map(len, needs)) > 1
    for script in found:
        assert spans(script.program) == [(0, len(script.bodies) - 1)]


def test_scene_names_are_unique():
    for known in ((*EMULATED_SCENES, *GENERATED_SCENES), REAL_SCENES, QUICK_SCENES):
        assert len({scene.name for scene in known}) == len(known)


@pytest.mark.usefixtures("measured")
def test_load_sets_the_rate_relative_to_the_capacity_for_the_programs_with_their_gaps(
    tmp_path, monkeypatch
):
    measured = []

    def capacity(programs, replicas, ratio):
        measured.append([c.call.gap_s for program in programs for c in program.calls])
        return 4.0

    monkeypatch.setattr(scenes, "capacity", capacity)
    data, there = dialogues(tmp_path, 8), replicas(2.0)
    own = scenes.cast(SCENE, data, 0, there, NONE)
    assert (own.rate, own.capacity, measured) == (2.0, 0.0, [])
    found = scenes.cast(SCENE, data, 0, there, NONE, load=0.75)
    assert (found.rate, found.capacity) == (3.0, 4.0)
    assert [g for s in found.scripts for g in s.gaps_s] == [2 * gap for gap in measured[0]]
    for one, other in zip(own.scripts, found.scripts, strict=True):
        assert other.arrival_s == pytest.approx(one.arrival_s * 2 / 3)
    known = scenes.cast(SCENE, data, 0, there, NONE, load=0.75, rate=5.0)
    assert (known.rate, known.capacity) == (5.0, pytest.approx(5 / 0.75))
    assert len(measured) == 1


@pytest.mark.usefixtures("measured")
def test_chats_are_single_calls_while_programs_arrive(tmp_path):
    data = dialogues(tmp_path, 8)
    plain = scenes.cast(SCENE, data, 0, replicas(2.0), NONE)
    found = scenes.cast(SCENE, data, 0, replicas(2.0), NONE, chats=20.0)
    chats = [script for script in found.scripts if script.chat]
    assert [s.bodies for s in found.scripts if not s.chat] == [s.bodies for s in plain.scripts]
    assert 5 < len(chats) < 200
    assert {len(chat.bodies) for chat in chats} == {1}
    assert len({chat.bodies[0] for chat in chats}) == len(chats)
    assert json.loads(chats[0].bodies[0])["max_tokens"] == 64
    assert max(c.arrival_s for c in chats) < max(s.arrival_s for s in plain.scripts)


@pytest.mark.usefixtures("measured")
def test_a_second_data_set_is_every_second_program(tmp_path):
    data = dialogues(tmp_path, 8)
    dialogues(tmp_path / "other", 8)
    scene = replace(SCENE, beside="other/tau_airline")
    plain = scenes.cast(SCENE, data, 0, replicas(), NONE).scripts
    found = scenes.cast(scene, data, 0, replicas(), NONE).scripts
    assert [s.bodies for s in found[::2]] == [s.bodies for s in plain[:3]]


@pytest.mark.usefixtures("measured")
def test_turns_get_targets_and_answers_inside_them_call_tools(tmp_path, monkeypatch):
    alone = []

    def turns_alone(replicas, ratio, program, gaps_s):
        alone.append(gaps_s)
        return [4.0] * len(spans(program))

    monkeypatch.setattr(scenes, "turns_alone", turns_alone)
    scene, data = replace(SCENE, calls=3), dialogues(tmp_path, 8)
    plain = scenes.cast(scene, data, 0, replicas(1.0), NONE).scripts
    assert not any(script.turns or script.slo(0) for script in plain)
    found = scenes.cast(scene, data, 0, replicas(1.0), NONE, scale=2.0).scripts
    assert alone == [script.gaps_s for script in found]
    for one, other in zip(plain, found, strict=True):
        # Each answer of these dialogues goes to a person.
        assert [(t.first, t.last) for t in other.turns] == [(0, 0), (1, 1), (2, 2)]
        assert all(turn.target_s >= 8.0 for turn in other.turns)
        assert other.slo(1) == other.turns[1].slo
        assert other.bodies == one.bodies
    folder = tmp_path / "coding_sessions"
    folder.mkdir()
    (folder / "sessions.jsonl").write_text("\n".join(json.dumps(session(n)) for n in range(3)))
    coding = Scene("coding_sessions", "coding_sessions", 2, 1.0, 3, 1.0)
    for script in scenes.cast(coding, tmp_path, 0, replicas(1.0), NONE, scale=2.0).scripts:
        bodies = [json.loads(body) for body in script.bodies]
        assert [(t.first, t.last) for t in script.turns] == [(0, 1), (2, 2)]
        assert ["metadata" in body for body in bodies] == [True, False, False]
        assert [b["messages"][-1]["role"] for b in bodies] == ["user", "tool", "user"]


def session(number: int) -> dict:
    """Return a coding session of three calls; the second one ends a turn."""
    requests = [
        {"in": 64 * n, "out": 16, "hash_ids": list(range(n)), "stop": stop, "think_time": 1.0}
        for n, stop in ((4, "tool_use"), (8, "end_turn"), (12, "tool_use"))
    ]
    return {"id": f"s{number}", "block_size": 64, "requests": requests}
