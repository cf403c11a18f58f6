"""`weft bench list`, `weft bench run`, `weft bench all`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.measuring import rise
from support.processes import alive, descendants
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.report.page import conclude
from weft_bench.studies import command
from weft_bench.studies.cells import Measured, cells
from weft_bench.studies.experiment import Experiment, Table
from weft_bench.studies.store import ROOT


def _tables(found: Measured) -> list[Table]:
    return [Table("all", ("what", "x"), [("it", str(found.estimate("x")))])] if found else []


_ONE = Experiment(
    name="one",
    title="One thing",
    source="here",
    published="",
    cells=lambda quick: cells(3, what="works", quick=quick),
    measure=rise,
    tables=_tables,
    code=("loadgen/weft_bench/stats.py",),
)
_BAD = replace(_ONE, name="bad", cells=lambda quick: cells(3, what="fails"))


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "EXPERIMENTS", {"one": _ONE, "bad": _BAD})
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results" / "experiments")
    monkeypatch.setattr(command, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(command, "_QUICK", tmp_path / "quick")
    monkeypatch.setattr(command, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr("weft_bench.studies.store.FOLDER", tmp_path / "store")


def test_the_list_names_every_experiment_and_its_source() -> None:
    done = CliRunner().invoke(cli.bench, ["list"])
    assert done.exit_code == 0
    assert "one  One thing" in done.stdout
    assert "simulated; here" in done.stdout


@pytest.mark.slow
def test_run_shows_and_writes_its_figures(tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(cli.bench, ["run", "one", "--fresh", "--jobs", "1"])
    assert done.exit_code == 0, done.stdout
    assert "3.00 ± 2.48" in done.stdout
    found = json.loads((tmp_path / "results/experiments/one.json").read_text())
    assert found["command"] == "weft bench run one"
    assert [cell["values"]["x"] for cell in found["cells"]] == [2.0, 3.0, 4.0]


@pytest.mark.slow
def test_quick_run_does_not_change_the_results(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["run", "one", "--quick", "--fresh"])
    assert done.exit_code == 0
    assert not (tmp_path / "results").exists()
    assert json.loads((tmp_path / "quick/one.json").read_text())["command"].endswith("--quick")


@pytest.mark.slow
def test_output_folder_can_be_given(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    done = CliRunner().invoke(cli.bench, ["run", "one", "--fresh", "--out", str(out)])
    assert done.exit_code == 0
    assert (out / "one.json").is_file()
    assert not (tmp_path / "results").exists()


def test_unwritable_folder_is_reported_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "mine")
    for names in (["run", "one"], ["all"]):
        done = CliRunner().invoke(cli.bench, [*names, "--fresh", "--out", out])
        assert done.exit_code == 2, done.output
        assert "cannot be written" in done.stderr
        assert "cells" not in done.stdout


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    done = CliRunner().invoke(cli.bench, ["run", "two"])
    assert done.exit_code == 2
    assert "unknown experiment 'two'; known: one, bad" in done.stderr


@pytest.mark.slow
def test_failed_experiment_is_reported(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["run", "bad", "--fresh"])
    assert done.exit_code == 1
    assert "bad: no such engine" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_all_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "EXPERIMENTS", {"one": _ONE})
    monkeypatch.setattr("weft_bench.studies.registry.EXPERIMENTS", {"one": _ONE})
    other = {"command": "weft bench x", "date": "2026-01-02T03:04:05", "machine": "m"}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.json").write_text(json.dumps(other))
    done = CliRunner().invoke(cli.bench, ["all", "--fresh"])
    assert done.exit_code == 0, done.stdout
    page = (tmp_path / "docs/results.md").read_text()
    assert "[One thing](results/one.md)" in page
    one = (tmp_path / "docs/results/one.md").read_text()
    assert "# One thing" in one
    assert re.search(r"\| it +\| 3.00 ± 2.48 \|", one)
    sources = (tmp_path / "docs/results/sources.md").read_text()
    assert re.search(
        r"\| `results/x.json` +\| `weft bench x` +\|.* 2026-01-02 +\|.* m +\|", sources
    )


def test_the_tables_of_other_commands_have_pages(tmp_path: Path) -> None:
    table = {"title": "times", "labels": 1, "columns": ["what", "s"], "rows": [["it", "3"]]}
    conclude("weft bench x", "X", "real", [table], [], [], str(tmp_path / "results" / "x.json"))
    assert CliRunner().invoke(cli.bench, ["page"]).exit_code == 0
    assert "[X](results/x.md)" in (tmp_path / "docs/results.md").read_text()
    page = (tmp_path / "docs/results/x.md").read_text()
    assert "# X" in page
    assert re.search(r"\| it +\| +3 \|", page)


# Runs in a separate process that receives signals. Its first cell ends, the others never do.
_ENDLESS = """
import sys
from dataclasses import replace
from pathlib import Path
from support.measuring import hang
from weft_bench.studies import command, store
from weft_bench.studies.cells import cells
from weft_bench.studies.edges import EXPERIMENT

if __name__ == "__main__":
    one = replace(EXPERIMENT, cells=lambda quick: cells(4, a=1), measure=hang, code=())
    command.EXPERIMENTS = {"one": one}
    keep = store.Store(one, Path(sys.argv[1]), Path(store.ROOT))
    command.Store = lambda experiment: keep
    sys.exit(command.run_experiments(command.ExperimentOptions(("one",), jobs=2)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_the_command_and_its_workers(tmp_path: Path, number: int, status: int) -> None:
    script, kept = tmp_path / "endless.py", tmp_path / "kept"
    script.write_text(_ENDLESS)
    paths = os.pathsep.join((str(ROOT / "loadgen"), str(ROOT / "tests"), *sys.path))
    bench = subprocess.Popen(
        [sys.executable, str(script), str(kept)],
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(kept.rglob("*.json")):
            assert time.monotonic() < deadline, "the first cell was not measured"
            assert bench.poll() is None, bench.communicate()
            time.sleep(0.02)
        started = descendants(bench.pid)
        bench.send_signal(number)
        _, said = bench.communicate(timeout=60)
        assert bench.returncode == status, said
        assert "measured cells are kept; the same command continues" in said
        while any(map(alive, started)):
            assert time.monotonic() < deadline, "a worker outlived the command"
            time.sleep(0.02)
        assert len(list(kept.rglob("*.json"))) == 1
    finally:
        for pid in {bench.pid, *descendants(bench.pid)}:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        bench.wait()
