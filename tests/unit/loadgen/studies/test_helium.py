"""Batches of workflows, as experiments."""

from __future__ import annotations

from weft_bench.studies.cells import Cell, measured
from weft_bench.studies.helium import FIGURE_7, TABLE_2, TABLE_3, TABLE_4
from weft_bench.studies.helium_plans import TABLE_5, measure_gap
from weft_bench.studies.show import pooled


def test_systems_play_the_same_rows_on_the_same_engines() -> None:
    for experiment in (TABLE_2, TABLE_3, TABLE_4, FIGURE_7):
        for quick in (True, False):
            scenes: dict[str, set[tuple[object, ...]]] = {}
            for cell in experiment.cells(quick):
                settings = tuple(one for one in cell.settings if one[0] != "system")
                scenes.setdefault(cell.text("system"), set()).add((settings, cell.seed))
            assert len({frozenset(found) for found in scenes.values()}) == 1


def test_reported_seeds_are_not_those_of_tuning() -> None:
    for experiment in (TABLE_2, TABLE_3, TABLE_4, TABLE_5):
        assert experiment.first_seed >= 100


def test_pooled_is_the_geometric_mean_of_each_seed() -> None:
    found = measured(
        (Cell((("shape", name),), seed), {"s": value})
        for name, seed, value in (("a", 0, 1.0), ("b", 0, 4.0), ("a", 1, 1.0))
    )
    assert pooled(found, "s").series("s") == {0: 2.0, 1: 1.0}


def test_headline_of_parts_compares_each_part_over_workflows() -> None:
    found = measured(
        (cell, {"seconds": 1.0 if cell.text("system") == "weft" else 2.0, "hit_rate": 0.5})
        for cell in TABLE_3.cells(False)
    )
    scores = {one.name: one.ratio.middle for one in TABLE_3.headline(found).scores}
    assert scores["engine 2 x 2.0 (even slices)"] == 0.5
    assert len(scores) == 2 * 7


def test_no_schedule_is_better_than_the_optimum() -> None:
    values = measure_gap(TABLE_5.cells(True)[0])
    gaps = [value for name, value in values.items() if name.startswith("gap of")]
    assert len(gaps) == 6
    assert min(gaps) >= 0
    # A longest remaining path first is closer than Helium's order here.
    assert values["gap of weft"] <= values["gap of helium"]
