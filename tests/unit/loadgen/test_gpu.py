"""`make gpu` on a machine without a GPU, and the commands that it would run with one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft_bench import cli, gpu
from weft_bench.agents import host
from weft_bench.agents.engines import Engines

URL = "http://127.0.0.1:9"
ENGINES = Engines((URL,), URL, "weft-bench", 131_072, 400_000, emulated=False)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(host, "read_gpus", list)


def test_without_a_gpu_it_says_so_and_runs_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: pytest.fail(str(args)))
    assert gpu.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "no NVIDIA GPU found" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("line", [["fit", "nonsense"], ["agents", "--data", "/nowhere"]])
def test_invalid_arguments_are_refused(line, capsys):
    with pytest.raises(SystemExit) as ended:
        gpu.main(line)
    assert ended.value.code == 2
    assert "nonsense" in (text := capsys.readouterr().err) or "/nowhere" in text


def test_each_part_runs_within_its_limit_and_a_failed_one_does_not_stop_the_next(
    tmp_path, monkeypatch, capsys
):
    lines = []

    def run(line, **options):
        lines.append(line)
        return subprocess.CompletedProcess(line, 1 if "swap" in line else 0)

    monkeypatch.setattr(gpu, "look", lambda weights: {"gpu": {}})
    monkeypatch.setattr(subprocess, "run", run)
    wanted = ["swap", "tests", "agents", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert gpu.main(wanted) == 1
    assert "failed: swap" in capsys.readouterr().err
    assert [line[2] for line in lines] == ["120", "180", "450"]
    assert all(line[0] == "timeout" for line in lines)
    assert '"status": 0' in (tmp_path / "out" / "tests.json").read_text()
    assert sum(limit_s for _, limit_s in gpu.PARTS.values()) <= 900


def test_the_benches_accept_their_commands(tmp_path):
    given = gpu.Given(tmp_path, tmp_path / "a.json", 9, ("--enforce-eager",))
    for line, says in (
        (gpu.agents_line(given), "no NVIDIA GPU found"),
        (gpu.fit_line(ENGINES, tmp_path / "f.json"), "cannot be measured"),
    ):
        done = CliRunner().invoke(cli.bench, line[4:])
        assert done.exit_code == 2
        assert says in done.output
    assert Path(gpu._ROOT, "tests", "gpu").is_dir()
