"""Plays of the curve in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.sessions import sessions
from typer.testing import CliRunner
from weft_bench.agents.scene import Scene
from weft_bench.agents.systems import ENDLESS, OURS, PAUSE, STICKY, STOCK
from weft_bench.agents.virtual_plays import SYSTEMS, play
from weft_bench.cli import bench

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_plays_the_same_sessions(name, tmp_path):
    # Contexts of 1,920 tokens; a cache of 80 blocks of 64 holds two.
    data = str(sessions(tmp_path, 40))
    scene = Scene(replicas=2, kv_blocks=80, slots=8, gap_s=0.2, chats_s=0.5, data=data)
    found = play(scene, SYSTEMS[name], 2.0, 0)
    # Eight at once, and twice as many count.
    assert found["calls"] >= 3 * 16
    assert found["mean"] >= 0.4
    assert 0 < found["hit_rate"] < 1
    assert 0 < found["ttft_p50"] <= found["ttft_p95"]
    assert found["chat_ttft_p50"] > 0
    assert found == play(scene, SYSTEMS[name], 2.0, 0)


def test_an_endless_cache_is_not_slower(tmp_path):
    scene = Scene(kv_blocks=80, slots=8, gap_s=0.2, data=str(sessions(tmp_path, 40)))
    means = {name: play(scene, SYSTEMS[name], 4.0, 0)["mean"] for name in (OURS, ENDLESS, PAUSE)}
    assert means[ENDLESS] == min(means.values())


def test_host_memory_keeps_contexts(tmp_path):
    scene = Scene(kv_blocks=80, slots=8, gap_s=0.2, data=str(sessions(tmp_path, 40)))
    rates = [play(scene, SYSTEMS[STOCK], 4.0, 0, host=host)["hit_rate"] for host in (0, 8)]
    assert rates[1] > rates[0]


def test_a_command_fills_a_file_over_several_runs(tmp_path):
    files = {end: str(tmp_path / f"curve.{end}") for end in ("json", "md", "svg")}
    line = [
        "agents", "--data", str(sessions(tmp_path, 40)), "--kv-blocks", "80", "--slots", "8",
        "--parallel", "1", "--json", files["json"], "--page", files["md"], "--chart", files["svg"],
    ]  # fmt: skip
    for more in (["--systems", OURS, "--times", "1"], ["--systems", f"{OURS},{STICKY}"]):
        done = CliRunner().invoke(bench, [*line, "--times", "1,2", "--seeds", "1", *more])
        assert done.exit_code == 0, done.output
    document = json.loads(Path(files["json"]).read_text())
    played = [(one["play"]["system"], one["play"]["times"]) for one in document["plays"]]
    assert sorted(played) == [(OURS, 1.0), (OURS, 2.0), (STICKY, 1.0), (STICKY, 2.0)]
    assert len(document["commands"]) == 2
    assert "DATA" in document["commands"][0]
    assert "our reading" in Path(files["md"]).read_text()
    assert Path(files["svg"]).read_text().startswith("<svg")
    done = CliRunner().invoke(bench, [*line, "--systems", "nothing"])
    assert done.exit_code == 2
    assert "unknown systems nothing" in done.output
