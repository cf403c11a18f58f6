"""Batches of workflows, as experiments."""

from __future__ import annotations

from weft_bench.studies.cells import Cell, measured
from weft_bench.studies.helium import FIGURE_7, TABLE_2, TABLE_4
from weft_bench.studies.helium_parts import TABLE_3
from weft_bench.studies.helium_plans import TABLE_5, measure_gap
from weft_bench.studies.show import pooled


def test_systems_play_the_same_rows_on_the_same_engines() -> None:
    for experiment in (TABLE_2, TABLE_3, TABLE_4, FIGURE_7):
        for quick in (True, False):
            scenes: dict[str, set[tuple[object, ...]]] = {}
            for cell in experiment.cells(quick):
                settings = tuple(one for one in cell.settings if one[0] != "system")
                scenes.setdefault(cell.text("system"), set()).add((settings, cell.seed))
            # The parts of `weft run` and those of the planner have workflows of each family.
            families = (
                {name.partition(",")[0] for name in scenes} if experiment is TABLE_3 else {""}
            )
            for family in families:
                played = [found for name, found in scenes.items() if name.split(",")[0] == family]
                played = played or list(scenes.values())
                assert len({frozenset(found) for found in played}) == 1


def test_reported_seeds_are_not_those_of_tuning() -> None:
    for experiment in (TABLE_2, TABLE_3, TABLE_4, TABLE_5):
        assert experiment.first_seed >= 100


def test_pooled_is_the_geometric_mean_of_each_seed() -> None:
    found = measured(
        (Cell((("shape", name),), seed), {"s": value})
        for name, seed, value in (("a", 0, 1.0), ("b", 0, 4.0), ("a", 1, 1.0))
    )
    assert pooled(found, "s").series("s") == {0: 2.0, 1: 1.0}


def test_headline_and_goals_compare_the_whole_with_each_part_left_out() -> None:
    found = measured(
        (cell, {"seconds": 2.0 if "," in cell.text("system") else 1.0, "hit_rate": 0.5, "calls": 9})
        for cell in TABLE_3.cells(False)
    )
    scores = {one.name: one.ratio.middle for one in TABLE_3.headline(found).scores}
    assert scores["engine 2 x 2.0 (weft, even slices)"] == 0.5
    assert scores["engine 2 x 1.0 (weft run, no merging)"] == 0.5
    assert len(scores) == 2 * (5 + 6)
    assert [goal.found.middle for goal in TABLE_3.goals(found)] == [2.0] * 5
    assert [len(one.rows) for one in TABLE_3.tables(found)] == [2 * 4 * 6, 2 * 3 * 7]


def test_no_schedule_is_better_than_the_optimum() -> None:
    values = measure_gap(TABLE_5.cells(True)[0])
    gaps = [value for name, value in values.items() if name.startswith("gap of")]
    assert len(gaps) == 6
    assert min(gaps) >= 0
    # A longest remaining path first is closer than Helium's order here.
    assert values["gap of weft"] <= values["gap of helium"]
