"""Engine starts, cells and results of a run, without an engine."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.cli.gpu import GpuOptions
from weft_bench.drive.player import Play, ProgramResult
from weft_bench.gpu import command
from weft_bench.gpu.cells import Cell, Results
from weft_bench.gpu.command import CELLS_LEFT, run, sessions
from weft_bench.gpu.engine import Counts, EngineError, Started
from weft_bench.gpu.host import Host, HostError
from weft_bench.gpu.play import Outcome
from weft_bench.stack.processes import NotReady

CPU = Host("cpu", "2 cores", None, {"vllm": "0.32.0"})


class Stage:
    """Replaces engines and plays, and records their calls."""

    def __init__(self, monkeypatch):
        self.log: list[str] = []
        self.errors: list[str] = []
        self.takes_s = 0.0
        self.now = 0.0
        monkeypatch.setattr(command, "look", lambda *_: CPU)
        monkeypatch.setattr(command, "write", lambda folder, name, context: None)
        monkeypatch.setattr(command, "started", self.started)
        monkeypatch.setattr(command, "cache_of", lambda _: (700, 16))
        monkeypatch.setattr(command.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(command, "fit_engine", lambda *_: self.log.append("fit"))
        for name in ("metrics", "warm_up", "capacity", "play_cell"):
            monkeypatch.setattr(command, name, getattr(self, name))

    @contextmanager
    def started(self, system, options, model, logs, wait_s):
        assert logs.is_dir()
        self.log.append(f"start {system.policy or system.what.split()[0]} {system.prefix_cache}")
        yield Started("http://e", "http://g", 20.0, logs / "engine.log")

    async def metrics(self, engine):
        return ""

    async def warm_up(self, at, workload, options):
        pass

    async def capacity(self, at, workload, options):
        self.log.append(f"capacity {workload}")
        return 2.0

    async def play_cell(self, at, workload, rate, options, tags, on_call):
        self.log.append(f"play {workload} {rate:g} {tags}")
        self.now += self.takes_s
        on_call()
        result = ProgramResult("p", 0.0, finish_s=1.0, errors=list(self.errors))
        empty = command_outcome(result)
        return Outcome(empty, Play([result]), Counts(), rate, 1.0)


def command_outcome(result):
    from weft_bench.workloads.cutting import ReadyProgram

    return [ReadyProgram(result.id, (), cut=False, trimmed=False)]


@pytest.fixture
def stage(monkeypatch):
    return Stage(monkeypatch)


def options(tmp_path, **changed):
    few = {"device": "cpu", "shape": "tiny", "workloads": ("bfcl", "lats"), "loads": (0.5, 1.0)}
    return GpuOptions(**{**few, "json_file": str(tmp_path / "gpu.json"), **changed})


def test_capacities_are_measured_once_and_define_all_loads(stage, tmp_path):
    assert run(options(tmp_path, systems=("vllm-opt", "ours"))) == 0
    played = [f"play {w} {r:g} {{}}" for w in ("bfcl", "lats") for r in (1.0, 2.0)]
    assert stage.log == [
        "start vLLM True", "capacity bfcl", "capacity lats",
        *(line.format(False) for line in played),
        "start Weft: True", *(line.format(True) for line in played),
    ]  # fmt: skip
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["capacity"] == {"bfcl": 2.0, "lats": 2.0}
    assert document["engines"]["ours"]["kv_blocks"] == 700
    assert document["host"]["device"] == document["configuration"]["device"] == "cpu"
    assert len(document["cells"]) == 8


def test_second_run_plays_only_missing_cells(stage, tmp_path):
    assert run(options(tmp_path, systems=("vllm-opt",), workloads=("bfcl",))) == 0
    stage.log.clear()
    assert run(options(tmp_path, systems=("vllm-opt", "mlfq"), workloads=("bfcl",))) == 0
    assert stage.log == ["start mlfq True", "play bfcl 1 False", "play bfcl 2 False"]
    stage.log.clear()
    assert run(options(tmp_path, systems=("vllm-opt", "mlfq"), workloads=("bfcl",))) == 0
    assert stage.log == []


def test_time_limit_leaves_and_reports_the_remaining_cells(stage, tmp_path, capsys):
    stage.takes_s = 100.0
    # Two cells fit with their limits, a third one does not.
    times = {"window_s": 60.0, "drain_s": 60.0, "minutes": 6.0, "calibration_s": 5.0}
    asked = options(tmp_path, systems=("vllm-opt",), **times)
    assert run(asked) == CELLS_LEFT
    assert sum(line.startswith("play") for line in stage.log) == 3
    assert "1 cells are left" in capsys.readouterr().out
    stage.log.clear()
    assert run(asked) == 0
    assert [line for line in stage.log if line.startswith("play")] == ["play lats 2 False"]


def test_unknown_capacity_is_measured_first():
    found = Results({}, {}, {})
    asked = GpuOptions(systems=("ours",), workloads=("bfcl",), loads=(1.0,))
    cell = Cell("ours", "bfcl", 1.0)
    assert sessions(asked, found) == [("vllm-opt", []), ("ours", [cell])]
    found.capacity["bfcl"] = 1.0
    assert sessions(asked, found) == [("ours", [cell])]
    found.cells[cell.key] = {"errors": 0.0}
    assert sessions(asked, found) == []


def test_a_given_capacity_is_not_measured(stage, tmp_path):
    assert run(options(tmp_path, systems=("ours",), capacity={"bfcl": 4.0, "lats": 1.0})) == 0
    assert stage.log[:2] == ["start Weft: True", "play bfcl 2 True"]


def test_failed_programs_fail_the_run(stage, tmp_path, capsys):
    stage.errors = ["500: broken"]
    assert run(options(tmp_path, systems=("vllm-opt",))) == 1
    assert "500: broken" in capsys.readouterr().err
    # Their cells are played again.
    stage.errors = []
    stage.log.clear()
    assert run(options(tmp_path, systems=("vllm-opt",))) == 0
    assert sum(line.startswith("play") for line in stage.log) == 4


def test_engine_that_fails_during_a_play_is_reported_with_its_cause(
    stage, tmp_path, monkeypatch, capsys
):
    async def gone(*_):
        (tmp_path / "logs" / "vllm-opt" / "engine.log").write_text("OutOfMemoryError: CUDA\n")
        raise ConnectionError("refused")

    monkeypatch.setattr(command, "play_cell", gone)
    asked = options(tmp_path, systems=("vllm-opt",), logs=str(tmp_path / "logs"))
    assert run(asked) == 1
    output = capsys.readouterr().err
    assert "vllm-opt does not answer" in output
    assert "OutOfMemoryError: CUDA" in output


@pytest.mark.parametrize("error", [NotReady("CUDA out of memory"), EngineError("CUDA out of")])
def test_failed_start_keeps_earlier_cells(stage, tmp_path, monkeypatch, capsys, error):
    before = stage.started

    @contextmanager
    def refuse(system, *rest):
        if system.tags:
            raise error
        with before(system, *rest) as at:
            yield at

    monkeypatch.setattr(command, "started", refuse)
    assert run(options(tmp_path, systems=("vllm-opt", "ours"))) == 1
    assert "CUDA out of" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "gpu.json").read_text())["cells"]) == 4


def test_fit_runs_once_also_without_cells(stage, tmp_path):
    file = tmp_path / "engine.json"
    assert run(options(tmp_path, systems=(), fit_file=str(file))) == 0
    assert stage.log == ["fit"]
    file.write_text("{}")
    assert run(options(tmp_path, systems=(), fit_file=str(file))) == 0
    assert stage.log == ["fit"]


def test_unsuitable_machine_is_refused_before_anything_starts(stage, tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise HostError("no NVIDIA GPU found")

    monkeypatch.setattr(command, "look", refuse)
    assert run(options(tmp_path)) == 2
    assert capsys.readouterr().err == "weft bench gpu: no NVIDIA GPU found\n"
    assert stage.log == []


def test_file_of_another_command_is_refused(stage, tmp_path, capsys):
    (tmp_path / "gpu.json").write_text('{"command": "weft bench replay"}')
    assert run(options(tmp_path)) == 2
    assert "holds no results" in capsys.readouterr().err
    assert stage.log == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--systems", "unknown"], "vllm-opt"),
        (["--systems", "none"], "--fit"),
        (["--workloads", "web"], "sharegpt"),
        (["--loads", "0"], "0.5,0.8,1"),
        (["--capacity", "bfcl"], "sharegpt=1.5"),
        (["--capacity", "web=1"], "known:"),
        (["--shape", "3b"], "8b"),
        (["--device", "tpu"], "cuda"),
        (["--policy", "best"], "plas"),
    ],
)
def test_invalid_options_are_refused(arguments, why):
    done = CliRunner().invoke(cli.bench, ["gpu", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert why in done.output


def test_command_line_selects_the_cells(monkeypatch):
    found = []
    monkeypatch.setattr(command, "run", lambda asked: found.append(asked) or 0)
    line = ["--systems", "ours,vllm", "--loads", "0.5,1", "--capacity", "lats=0.3, bfcl=2"]
    line += ["--max-model-len", "4096", "--minutes", "9", "--", "--enforce-eager"]
    assert CliRunner().invoke(cli.bench, ["gpu", *line]).exit_code == 0
    (asked,) = found
    assert asked.systems == ("ours", "vllm")
    assert asked.loads == (0.5, 1.0)
    assert asked.capacity == {"lats": 0.3, "bfcl": 2.0}
    assert asked.max_model_len == 4096
    assert asked.more == ("--enforce-eager",)
    assert asked.minutes == 9.0
