"""Halo's workflows under load, as experiments."""

from __future__ import annotations

from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.halo_load import FIGURE_8, FIGURE_9


def test_systems_play_the_same_queries_under_the_same_loads() -> None:
    scenes: dict[str, set[tuple[object, ...]]] = {}
    for cell in FIGURE_8.cells(False):
        settings = tuple(one for one in cell.settings if one[0] != "system")
        scenes.setdefault(cell.text("system"), set()).add((settings, cell.seed))
    assert len({frozenset(found) for found in scenes.values()}) == 1
    assert FIGURE_8.first_seed >= 100


def _workers(seconds: dict[int, float]) -> Measured:
    def values(cell: Cell) -> dict[str, float]:
        took, workers = seconds[int(cell.number("workers"))], cell.number("workers")
        return {"seconds": took, "worker_s": took * workers, "hit_rate": 0.2}

    return measured((cell, values(cell)) for cell in FIGURE_9.cells(False))


def test_share_of_linear_is_the_rate_over_that_of_as_many_single_workers() -> None:
    found = _workers({1: 160.0, 4: 40.0, 16: 12.5})
    goals = {goal.what: goal for goal in FIGURE_9.goals(found)}
    assert goals["4 workers: share of linear:"].found.middle == 1
    assert goals["16 workers: share of linear:"].found.middle == 0.8
    assert not goals["16 workers: share of linear:"].met


def test_goal_of_the_rate_is_under_the_highest_load() -> None:
    found = measured(
        (
            cell,
            {
                "offered": 1.0,
                "rate": 3.5 if cell.text("system") == "weft run" else cell.number("load"),
                "latency_s": 1.0,
                "p95_s": 1.0,
            },
        )
        for cell in FIGURE_8.cells(False)
    )
    (first, *_) = FIGURE_8.goals(found)
    assert first.found.middle == 3.5 / 4
    assert FIGURE_8.tables(found)[0].rows[0][:3] == ("W1 retrieval", "0.5", "topological")
