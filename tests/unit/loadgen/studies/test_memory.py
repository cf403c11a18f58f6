"""The map of orders over load and cache size."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from weft_bench.studies.cells import Measured, cells, measured
from weft_bench.studies.experiment import HeatMap, Plot
from weft_bench.studies.memory import EXPERIMENT

# Mean and P95 by order. The best rival of the mean is another one than that of the P95.
_ORDERS = {"fcfs": (10.0, 40.0), "plas": (20.0, 30.0), "resident": (5.0, 15.0)}


def _found(caches: Iterable[int] = (4, 8), loads: Iterable[float] = (0.8, 1.2)) -> Measured:
    return measured(
        (
            cell,
            {
                "latency": mean * (1 + cell.seed),
                "latency_p95": p95 * (1 + cell.seed),
                "rate": 1.0,
                "hit_rate": 0.5,
            },
        )
        for cache in caches
        for load in loads
        for order, (mean, p95) in _ORDERS.items()
        for cell in cells(3, workload="swe", cache=cache, load=load, order=order)
    )


def test_map_has_the_ratio_to_the_best_rival_of_each_figure() -> None:
    maps = [one for one in EXPERIMENT.plots(_found()) if isinstance(one, HeatMap)]
    assert [one.shown.partition(" ")[0] for one in maps] == ["mean", "P95"]
    for one, expected, rival in zip(maps, (0.5, 0.5), ("fcfs", "plas"), strict=True):
        ((name, fields),) = one.panels
        assert name == "swe"
        assert set(fields) == {(load, cache) for load in (0.8, 1.2) for cache in (4.0, 8.0)}
        for ratio, note in fields.values():
            assert ratio.middle == pytest.approx(expected)
            assert note == rival


def test_lines_show_seconds_over_load_by_order() -> None:
    plots = [one for one in EXPERIMENT.plots(_found()) if isinstance(one, Plot)]
    assert [one.y for one in plots] == ["mean latency, s", "P95 latency, s"]
    names = [name for name, _ in plots[0].panels]
    assert names == ["swe, cache for 4", "swe, cache for 8"]
    (_, lines), *_ = plots[0].panels
    assert [(line.label, line.x) for line in lines] == [(name, [0.8, 1.2]) for name in _ORDERS]
    assert [one.middle for one in lines[0].y] == pytest.approx([20.0, 20.0])
    assert {one.file for one in plots} == {"-load"}


def test_headline_has_the_mean_and_the_p95_of_each_field() -> None:
    scores = EXPERIMENT.headline(_found([4], [1.2])).scores
    assert [score.name for score in scores] == [
        "swe, cache for 4, load 1.2, mean (fcfs)",
        "swe, cache for 4, load 1.2, P95 (plas)",
    ]
    assert all(score.outcome == "won" for score in scores)


def test_nothing_measured_gives_no_pictures() -> None:
    assert EXPERIMENT.plots(measured([])) == []
