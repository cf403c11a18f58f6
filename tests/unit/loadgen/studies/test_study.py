"""Files of studies: what they play, and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft_bench.studies.study import FOLDER, load, names

_STUDY = """
title: One
source: here
measure: programs
scene: {workload: dialogues, programs: 4}
systems: {plain: {order: fcfs}, ours: {order: resident, tags: true}}
cases:
  light: {rate: [0.1, 0.2]}
  heavy: {rate: 9.0, systems: [ours], seeds: 1, with: {ours: {tags: false}}}
quick: {case: light, programs: 2, rate: 0.1, seeds: 1}
tables: [{title: all, rows: [rate, system], columns: {s: latency}}]
"""


def _file(folder: Path, text: str = _STUDY, name: str = "one") -> str:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def test_every_combination_of_scenes_and_systems_has_one_cell_a_seed(tmp_path: Path) -> None:
    found = load(_file(tmp_path)).cells()
    assert [(one["case"], one["rate"], one["system"], one.seed) for one in found] == [
        *(
            ("light", rate, system, seed)
            for rate in (0.1, 0.2)
            for system in ("plain", "ours")
            for seed in range(3)
        ),
        ("heavy", 9.0, "ours", 0),
    ]


def test_a_case_changes_its_systems(tmp_path: Path) -> None:
    study = load(_file(tmp_path))
    by_case = {one["case"]: one for one in study.cells() if one["system"] == "ours"}
    assert [study.system_of(by_case[case]).tags for case in ("light", "heavy")] == [True, False]


def test_the_quick_form_changes_one_case(tmp_path: Path) -> None:
    study = load(_file(tmp_path))
    assert [(one["programs"], one["rate"], one.seed) for one in study.cells(quick=True)] == [
        (2, 0.1, 0)
    ] * 2


def test_a_file_takes_what_it_leaves_out_from_another(tmp_path: Path) -> None:
    study = load(_file(tmp_path, "like: agentix-12\ntitle: Two\n", "two"))
    assert (study.name, study.title) == ("two", "Two")
    assert study.cells() == load("agentix-12").cells()


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("order: fcfs", "odrer: fcfs", "odrer"),
        ("programs: 4", "porgrams: 4", "porgrams"),
        ("systems: [ours]", "systems: [mine]", "unknown system 'mine'"),
        ("title: One", "title: [", "expected"),
        ("measure: programs", "measure: nothing", "nothing"),
        ("workload: dialogues", "workload: coding_sessions", "unknown workload"),
    ],
)
def test_errors_name_the_fault(tmp_path: Path, old: str, new: str, error: str) -> None:
    file = _file(tmp_path, _STUDY.replace(old, new))
    with pytest.raises(ValueError, match=error):
        load(file).cells()


def test_an_unknown_study_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown study 'nothing'; known: agentix-12, .*hexgen"):
        load("nothing")


@pytest.mark.parametrize("name", names())
def test_every_study_is_short_and_names_figures_and_systems_that_exist(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert len(text.splitlines()) <= 60
    study = load(name)
    settings = {"case", *study.scene, *(key for case in study.cases.values() for key in case)}
    for table in study.tables:
        assert {*table.rows} <= settings | {"system"}
        assert {*table.cases} <= study.cases.keys()
        for column in table.columns.values():
            if not isinstance(column, str):
                named = {column.over, column.of, column.load} - {"", "row"}
                assert named <= study.systems.keys()
