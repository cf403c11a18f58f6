"""SLO scales and scenes of HexGen-Flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
from weft_bench.studies.cells import Measured, cells, measured
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.hexgen import SYSTEMS, Played, Scene, least_scale, system_in
from weft_bench.studies.hexgen_pools import FIGURE_4, FIGURE_5, FIGURE_6, pooled
from weft_bench.workloads.text2sql import SINGLE
from weft_gateway.policies.route.registry import ALPHA


@pytest.mark.parametrize(
    ("slowdown", "expected"),
    [
        (lambda scale: 5.0, 5.0),
        (lambda scale: 40.0, 40.0),
        # Tighter deadlines lead to more haste.
        (lambda scale: 4 + 2 / scale, 2 + 6**0.5),
        # Below a scale, all are late and first come, first served again.
        (lambda scale: 30.0 if scale < 11 else 9.0, 11.0),
    ],
)
def test_least_scale_makes_its_deadlines_just_attainable(
    slowdown: Callable[[float], float], expected: float
):
    found = least_scale(slowdown)
    assert slowdown(found) <= found
    assert found == pytest.approx(expected, rel=0.04)


def test_the_papers_system_has_the_best_alpha_of_its_sweep():
    cached, uncached = Scene("text2sql-3"), Scene("text2sql-3", cache=False)
    assert system_in(cached, "hexgen").alpha < 0
    assert ALPHA == 0.0
    assert system_in(uncached, "hexgen").alpha == 0.1
    assert system_in(uncached, "hexgen", alpha=0.4).alpha == 0.4
    assert system_in(uncached, "flow", balancer="work").alpha < 0


def test_search_does_not_follow_a_slowdown_that_falls_slowly():
    # Twelve steps of half a percent end above 7.5.
    found = least_scale(lambda scale: 0.995 * scale if scale > 7 else 7.5)
    assert found == pytest.approx(7, rel=0.031)


def test_least_scale_is_infinite_if_no_scale_is_attained():
    assert least_scale(lambda scale: 2 * scale) == inf


@pytest.mark.slow
@pytest.mark.engine
def test_only_systems_that_read_deadlines_depend_on_the_scale():
    scene = Scene("text2sql-3", queries=4, rate=0.5)
    plain = Played(scene, SYSTEMS["vllm"], 0)
    assert plain.at(2.0) is plain.at(9.0)
    assert plain.least_scale() == pytest.approx(plain.figures(3.0)["slowdown_p95"])
    urgent = Played(scene, SYSTEMS["hexgen"], 0)
    assert urgent.at(2.0) is not urgent.at(9.0)
    # Alone on a replica of the fast kind, a query is never slower than beside others.
    assert min(urgent.slowdowns(2.0)) > 0.4
    assert len(urgent.slowdowns(2.0)) == 4


@pytest.mark.slow
@pytest.mark.engine
def test_single_calls_are_counted_beside_queries():
    scene = Scene("text2sql-5", queries=3, rate=0.5, cache=False)
    played = Played(scene, SYSTEMS["ray"], 0)
    singles = [one for one in played.counted(1.0) if one.id.endswith(SINGLE)]
    assert len(played.slowdowns(1.0)) + len(singles) == scene.programs > 10
    assert len(played.slowdowns(1.0, single=True)) == len(singles)


@pytest.mark.slow
@pytest.mark.engine
def test_steady_state_counts_the_middle_half():
    scene = Scene("text2sql-4", "qwen-1", queries=12, load=0.5)
    played = Played(scene, replace(SYSTEMS["ray"]), 0)
    assert len(played.counted(1.0)) == 6


@pytest.mark.slow
@pytest.mark.engine
def test_queries_wait_for_few_slots():
    scene = Scene("text2sql-4", "homo", queries=12, rate=5.0)
    many, few = (
        Played(replace(scene, slots=slots), SYSTEMS["weft"], 0).figures(1.0) for slots in (0, 1)
    )
    assert few["latency"] > 2 * many["latency"]


def _found() -> Measured:
    figures = {"vllm": (20.0, 0.1), "hexgen": (8.0, 0.2), "flow": (5.0, 0.25)}
    return measured(
        (cell, {"p95_scale": p95 * (1 + cell.seed), "throughput": rate * (1 + cell.seed)})
        for trace in ("text2sql-1", "text2sql-3")
        for system, (p95, rate) in figures.items()
        for cell in cells(3, trace=trace, pool="hetero-1", rate=0.5, cache=True, system=system)
    )


def test_main_scenes_have_all_systems_with_and_without_cache_on_unseen_seeds():
    for cache in (True, False):
        burst = _of(FIGURE_4).where(trace="text2sql-3", pool="hetero-1", rate=0.5, cache=cache)
        assert set(burst.levels("system")) == set(SYSTEMS)
        assert {cell.seed + FIGURE_4.first_seed for cell in burst.values} == {100, 101, 102}
        steady = _of(FIGURE_4).where(load=0.75, cache=cache)
        assert {"vllm", "ray", "hexgen", "flow"} < set(steady.levels("system"))
        assert "flow" in _of(FIGURE_6).where(pool="homo", cache=cache).levels("system")
    assert set(_of(FIGURE_6).where(cache=True).levels("system")) == set(SYSTEMS)
    # Ours has the default balancer on equal replicas, as the docs advise.
    assert _of(FIGURE_6).where(system="flow").levels("balancer") == ["locality"]


def _of(figure: Experiment) -> Measured:
    return Measured({cell: {} for cell in figure.cells(False)})


def test_ratios_are_pooled_over_scenes_by_seed():
    ratio = pooled(_found(), "p95_scale", "flow", "vllm")
    assert (ratio.low, ratio.middle, ratio.high) == pytest.approx((0.25, 0.25, 0.25))


def test_tables_have_ours_the_reproduction_and_the_published_ratio():
    over_all = FIGURE_4.tables(_found())[0]
    assert over_all.rows == [
        ("hetero-1", "on", "vllm", "0.250", "0.400", "0.44 to 0.81"),
        ("hetero-1", "on", "hexgen", "0.625", "-", "-"),
    ]
    beside = FIGURE_5.tables(_found())[1]
    assert [row[:4] for row in beside.rows] == [
        (trace, "hetero-1", "0.5/s", "on") for trace in ("text2sql-1", "text2sql-3")
    ]


def test_headline_is_won_where_ours_needs_the_smaller_scale_and_serves_more():
    assert {one.outcome for one in FIGURE_4.headline(_found()).scores} == {"won"}
    assert {one.outcome for one in FIGURE_5.headline(_found()).scores} == {"won"}
