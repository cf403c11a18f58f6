"""`weft bench peers` with scripted fronts."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.peers import dialogues, replicas
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.cli.peers import PeersOptions
from weft_bench.peers import command, scenes
from weft_bench.peers.command import command_of, run
from weft_bench.peers.outcome import of_turns, summarise
from weft_bench.peers.turns import UserTurn, spans
from weft_bench.stack.processes import NotReady
from weft_bench.stack.proxies import Absent

FIGURES = summarise([], 1.0) | {"calls_per_s": 1.0, "duration_s": 1.0, "late": 0.0}


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Return a function that runs the command, the results by front, and the list of plays."""
    acts: dict[str, Exception | dict] = {}
    played: list[tuple[str, bool]] = []

    @contextmanager
    def started(options, schedulers):
        yield {name: replace(replicas(), scheduler=name) for name in schedulers}

    def play(front, scripts, replicas, work, on_call, *, install):
        played.append((front.name, install))
        act = acts.get(front.name, {})
        if isinstance(act, Exception):
            raise act
        return {"all": FIGURES | act}

    monkeypatch.setattr(command, "replicas", started)
    monkeypatch.setattr(command, "play", play)
    # A child process would not have the scripted functions.
    monkeypatch.setattr(command, "_apart", lambda call, *given, **named: call(*given, **named))
    monkeypatch.setattr(scenes, "ratio_of", lambda program, replicas: 4.0)
    monkeypatch.setattr(scenes, "alone_emulated", lambda replicas, ratio: lambda *_: 1.0)
    data = dialogues(tmp_path, 20, turns=4)

    def go(**options) -> int:
        wanted = {"workloads": ("tau_airline",), "programs": 4, "seeds": 2, **options}
        return run(PeersOptions(str(data), **wanted))

    return go, acts, played


def test_unavailable_peer_is_absent_with_its_reason(bench, capsys, tmp_path):
    go, acts, played = bench
    acts["smg/manual"] = Absent("no wheel for this machine")
    acts["litellm/session_affinity"] = NotReady("many lines\nit ended")
    file = tmp_path / "f.json"
    assert go(json_file=str(file)) == 0
    output = capsys.readouterr().out
    assert "smg/manual: absent (no wheel for this machine)" in output
    assert "litellm/session_affinity: absent (it ended)" in output
    document = json.loads(file.read_text())
    assert set(document["configuration"]["absent"]) == {"smg/manual", "litellm/session_affinity"}
    fronts = {turn["front"] for turn in document["turns"]}
    assert "smg/manual" not in fronts
    assert "smg/cache_aware" in fronts
    assert [name for name, _ in played].count("smg/manual") == 1
    assert document["kind"] == "emulated"


def test_run_in_which_no_front_plays_fails_and_names_the_reason(bench, capsys):
    go, acts, _ = bench
    acts["smg/manual"] = Absent("its environment is missing")
    assert go(fronts=("smg/manual",)) == 1
    error = capsys.readouterr().err
    assert "smg/manual is absent: its environment is missing" in error
    assert "no front played" in error


def test_weft_that_does_not_start_fails_the_bench_and_earlier_plays_are_shown(bench, capsys):
    go, acts, played = bench
    acts["weft/plas"] = NotReady("the gateway ended")
    assert go() == 1
    output = capsys.readouterr()
    assert "the gateway ended" in output.err
    assert "weft/fcfs" in output.out
    assert played[-1][0] == "weft/plas"


def test_errors_fail_the_bench_for_weft_but_not_for_peers(bench):
    go, acts, _ = bench
    acts["smg/manual"] = {"errors": 3.0}
    assert go() == 0
    acts["weft/fcfs"] = {"errors": 1.0}
    assert go() == 1


def test_each_seed_begins_with_another_front(bench):
    go, _, played = bench
    assert go() == 0
    names = [name for name, _ in played]
    half = len(names) // 2
    assert sorted(names[:half]) == sorted(names[half:])
    assert names[0] != names[half]


def test_quick_installs_nothing_and_skips_slow_peers(bench):
    go, _, played = bench
    assert go(quick=True, seeds=1) == 0
    assert not any(install for _, install in played)
    assert not any(name.startswith("litellm") for name, _ in played)
    assert go(fronts=("weft/plas",)) == 0
    assert played[-1] == ("weft/plas", True)


def test_too_slow_machine_is_reported(bench, capsys):
    go, acts, _ = bench
    acts["weft/plas"] = {"late": 0.05}
    acts["smg/manual"] = {"untold": 2.0}
    assert go(seeds=1) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "weft/plas, seed 0: the machine could not keep the replicas' pace: 5.0% late" in output
    assert "smg/manual, seed 0: no replica reports 2 answered calls" in output


def test_figures_have_the_command_that_reproduces_them():
    head = "weft bench peers --data DATA --engines"
    assert command_of(PeersOptions("/x", json_file="y")) == f"{head} emulated"
    some = PeersOptions("/x", fronts=("a", "b"), dilate=2.5, seeds=1, quick=True)
    expected = f"{head} emulated --fronts a,b --seeds 1 --dilate 2.5 --quick"
    assert command_of(some) == expected
    real = PeersOptions("/x", engines="real", replicas=2)
    assert command_of(real) == f"{head} real --replicas 2"


def test_turns_with_targets_have_their_own_tables_and_goal(bench, tmp_path, monkeypatch):
    go, acts, _ = bench
    monkeypatch.setattr(scenes, "turns_alone", lambda *given: [1.0] * len(spans(given[2])))
    figures = summarise([], 1.0) | of_turns([(1.0, UserTurn(0, 0, 1.0, 2.0, "a"))], 1.0)
    for name, share in (("weft/slack", 0.5), ("smg/manual", 0.4), ("smg/cache_aware", 0.2)):
        acts[name] = figures | {"attained": share, "turn_mean": 3.0 * share}
    file = tmp_path / "f.json"
    options = {"fronts": tuple(acts), "orders": ("slack",), "turn_target_scale": 2.0}
    assert go(**options, seeds=1, json_file=str(file)) == 0
    document = json.loads(file.read_text())
    assert document["title"] == "Targets of turns: tau_airline"
    assert document["tables"][0]["title"] == "tau_airline, 1 turns, seeds 0"
    assert document["findings"][:2] == [
        "missed: tau_airline: attainment of turns is 1.25 of the best peer's, goal 1.3",
        "loss: tau_airline: mean of turns is 2.50 of the best peer's",
    ]


def test_peers_play_on_stock_engines_and_weft_on_engines_with_the_plugin(bench, monkeypatch):
    go, _, _ = bench
    kinds: dict[str, str] = {}

    def play(front, scripts, replicas, work, on_call, *, install):
        kinds[front.name] = replicas.scheduler
        return {"all": FIGURES}

    monkeypatch.setattr(command, "play", play)
    assert go() == 0
    assert {kind for name, kind in kinds.items() if name.startswith("weft/")} == {"weft"}
    assert {kind for name, kind in kinds.items() if not name.startswith("weft/")} == {"stock"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"fronts": ("x",)}, "weft/plas"), ({"workloads": ("x",)}, "tau_airline")],
)
def test_unknown_names_are_refused_with_the_known_ones(bench, capsys, wrong, message):
    go, _, played = bench
    assert go(**wrong) == 2
    assert message in capsys.readouterr().err
    assert not played


@pytest.mark.parametrize(
    "words",
    [
        ["--engines", "gpu"],
        ["--engines", "real", "--dilate", "2"],
        ["--quick", "--seeds", "2"],
        ["--orders", "unknown"],
        ["--turn-target-scale", "2", "--dilate", "2"],
        ["--turn-target-scale", "2", "--engines", "real"],
    ],
)
def test_command_line_refuses_unused_options(words):
    done = CliRunner().invoke(cli.bench, ["peers", "--data", "x", *words])
    assert done.exit_code == 2


@pytest.mark.usefixtures("bench")
def test_missing_data_is_reported(capsys, tmp_path):
    assert run(PeersOptions(str(tmp_path / "nowhere"), workloads=("tau_airline",))) == 2
    assert "does not exist" in capsys.readouterr().err


def test_programs_are_prepared_in_a_child_process():
    assert command._apart(os.getpid) != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        command._apart(int, "x")


def test_generated_queries_are_played_only_by_name():
    assert "text2sql-3" not in [scene.name for scene in command._scenes(PeersOptions("/x"))]
    (named,) = command._scenes(PeersOptions("/x", workloads=("text2sql-3",)))
    assert named.name == "text2sql-3"
    with pytest.raises(ValueError, match="text2sql-3"):
        command._scenes(PeersOptions("/x", workloads=("text2sql-3",), quick=True))
