"""Properties of every experiment."""

from __future__ import annotations

import re
from collections import UserDict

import pytest
from weft_bench.studies.cells import Measured, measured
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.registry import EXPERIMENTS
from weft_bench.studies.store import Store

_ALL = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


@_ALL
@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
def test_every_setting_has_at_least_three_seeds(experiment: Experiment, quick: bool) -> None:
    cells = list(experiment.cells(quick))
    seeds: dict[object, set[int]] = {}
    for cell in cells:
        seeds.setdefault(cell.settings, set()).add(cell.seed)
    assert cells
    assert len(set(cells)) == len(cells)
    assert all(len(found) >= 3 for found in seeds.values())


@_ALL
def test_experiment_has_title_and_source(experiment: Experiment) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", experiment.name)
    assert experiment.title
    assert experiment.source
    assert not experiment.published.endswith(".")


@_ALL
def test_code_paths_of_the_experiment_exist(experiment: Experiment) -> None:
    Store(experiment)


@_ALL
def test_no_measurements_give_empty_tables(experiment: Experiment) -> None:
    empty = Measured({})
    assert all(not table.rows for table in experiment.tables(empty))
    assert not experiment.headline(empty).scores
    assert not experiment.claims(empty)
    assert not experiment.plots(empty)


class _Every(UserDict[str, float]):
    """Returns 0.5 for every figure."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> float:
        return 0.5


@_ALL
@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
def test_experiment_has_a_headline(experiment: Experiment, quick: bool) -> None:
    cells = measured((cell, _Every()) for cell in experiment.cells(quick))
    found = experiment.headline(cells)
    if not found.what:
        # Without another system, the goals are the summary.
        assert experiment.goals(cells)
        return
    assert found.scores
    # All figures are equal, so no comparison is won.
    assert {score.outcome for score in found.scores} == {"open"}
