"""One file for many runs, and the checks of its contents."""

from __future__ import annotations

import json

import pytest
from weft_bench.gpu.cells import Results, ResultsError, load, save
from weft_bench.report import gpu as report

VALUES = dict.fromkeys((column.figure for column in report.COLUMNS), 1.0)


def results(**changed):
    parts = {
        "host": {"device": "cuda", "gpu": {"name": "H100"}},
        "versions": {"vllm": "0.32.0"},
        "configuration": {"shape": "8b", "more": ("--enforce-eager",)},
    }
    return Results(**{**parts, **changed})


def test_runs_add_cells_to_one_file(tmp_path):
    file = tmp_path / "gpu.json"
    first = results()
    first.cells["lats/1/ours"] = dict(VALUES)
    first.capacity["lats"] = 0.3
    save(file, first)
    second = results()
    load(file, second)
    second.cells["lats/1/mlfq"] = dict(VALUES)
    second.engines["mlfq"] = {"start_s": 40.0}
    save(file, second)
    third = results()
    load(file, third)
    assert set(third.cells) == {"lats/1/ours", "lats/1/mlfq"}
    assert third.capacity == {"lats": 0.3}
    assert third.engines == {"mlfq": {"start_s": 40.0}}
    document = json.loads(file.read_text())
    assert document["command"] == "weft bench gpu"
    assert document["host"]["gpu"]["name"] == "H100"
    names = {figure["name"] for figure in document["figures"]}
    assert "lats/1/ours/response_mean" in names
    assert "lats/1/ours_over_mlfq/response_mean" in names
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"host": {"device": "cpu", "gpu": None}}, "another host: device 'cuda', here 'cpu'"),
        ({"versions": {"vllm": "0.33.0"}}, r"another versions: vllm '0\.32\.0'"),
        ({"configuration": {"shape": "1b", "more": []}}, "another configuration: shape '8b'"),
    ],
)
def test_file_rejects_figures_of_other_hosts_versions_and_settings(tmp_path, changed, why):
    file = tmp_path / "gpu.json"
    save(file, results())
    with pytest.raises(ResultsError, match=why):
        load(file, results(**changed))


@pytest.mark.parametrize("text", ["{", "[]", '{"command": "weft bench replay"}'])
def test_other_files_are_not_overwritten(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(ResultsError, match="other"):
        load(file, results())


def test_missing_file_has_no_cells(tmp_path):
    mine = results()
    load(tmp_path / "none.json", mine)
    (tmp_path / "empty.json").touch()
    load(tmp_path / "empty.json", mine)
    assert mine == results()


def test_capacity_cannot_change_once_cells_exist():
    mine = results()
    mine.set_capacity({"lats": 0.3})
    mine.set_capacity({"lats": 0.4})
    assert mine.capacity == {"lats": 0.4}
    mine.cells["lats/1/ours"] = dict(VALUES)
    with pytest.raises(ResultsError, match=r"0\.4"):
        mine.set_capacity({"lats": 0.5})
    mine.set_capacity({"bfcl": 2.0, "lats": 0.4})
