"""The comparison's tables, intervals and findings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_bench.peers.outcome import summarise
from weft_bench.report.peers import Turn, figures, findings, tables

NOUGHT = summarise([], 1.0) | {"calls_per_s": 1.0, "duration_s": 1.0, "late": 0.0}


def turns(front: str, means: list[float], **more: float) -> list[Turn]:
    """Return one play per seed. All completion times equal the mean."""
    times = ("mean", "p50", "p95", "p99")
    return [
        Turn("w", front, seed, {"all": NOUGHT | dict.fromkeys(times, value) | {"jain": 0.5} | more})
        for seed, value in enumerate(means)
    ]


def test_ratios_compare_the_same_seed():
    found = turns("weft/plas", [10.0, 20.0, 40.0]) + turns("peer", [5.0, 10.0, 20.0])
    assert "weft/plas is worse than peer: mean 2.00," in findings(found)[0]
    short = turns("weft/plas", [10.0, 20.0]) + turns("peer", [5.0, 10.0, 1.0])
    assert "weft/plas is worse than peer: mean 2.00," in findings(short)[0]


def test_plays_with_failed_programs_are_not_compared():
    failed = turns("peer", [1.0], errors=1.0) + turns("peer", [2.0, 5.0, 10.0])[1:]
    found = turns("weft/plas", [9.0, 10.0, 20.0]) + failed
    finding, _ = findings(found)
    assert "mean 2.00" in finding
    finding, _ = findings(turns("weft/plas", [9.0, 10.0]) + failed[:2])
    assert "worse than no peer" in finding


def test_findings_name_each_peer_that_is_better_or_worse():
    found = turns("weft/plas", [10.0, 11.0, 12.0]) + turns("weft/fcfs", [5.0, 9.0, 16.0])
    found += turns("peer", [9.0, 10.0, 11.0])
    finding, none = findings(found)
    assert finding.startswith("w: weft/plas is worse than peer: mean 1.1")
    assert "jain" not in finding
    assert none == "w: Weft is better than no peer within the intervals"
    better = turns("weft/plas", [8.0, 9.0, 10.0]) + turns("peer", [9.0, 10.0, 11.0])
    none, finding = findings(better)
    assert none == "w: Weft is worse than no peer within the intervals"
    assert finding.startswith("w: weft/plas is better than peer: mean 0.8")


def test_less_fairness_is_worse():
    found = turns("weft/plas", [9.0, 9.0], jain=0.4) + turns("peer", [9.0, 9.0])
    finding, _ = findings(found)
    assert finding == "w: weft/plas is worse than peer: jain 0.800"


def test_one_seed_gives_no_findings():
    (finding,) = findings(turns("weft/plas", [10.0]) + turns("peer", [1.0]))
    assert "no findings" in finding


def test_figures_have_means_units_and_half_intervals():
    found, widths = figures(turns("peer", [1.0, 2.0, 3.0]))
    by_name = {figure.name: figure for figure in found}
    assert by_name["w/peer/all/mean"].value == pytest.approx(2)
    assert by_name["w/peer/all/mean"].unit == "s"
    assert widths["w/peer/all/mean"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_each_workload_has_a_table_with_slices_and_total_errors():
    found = turns("weft/round_robin", [2.0, 4.0]) + turns("peer", [1.0, 2.0])
    found += turns("failing", [1.0, 2.0], errors=1.0)
    (table,) = tables(found)
    assert [row[0] for row in table["rows"]] == ["weft/round_robin", "peer", "failing"]
    columns = dict(zip(table["columns"], table["rows"][2], strict=True))
    assert columns["errors"] == "2"
    ratios = [row[-1] for row in table["rows"]]
    assert ratios == ["1.00", "0.500", "-"]
    slow = [
        Turn("w", t.front, t.seed, {**t.slices, "rest": NOUGHT, "long gaps": NOUGHT}) for t in found
    ]
    main, sliced = tables(slow)
    assert main["rows"] == table["rows"]
    assert [row[:2] for row in sliced["rows"]] == [
        (front, part)
        for front in ("weft/round_robin", "peer", "failing")
        for part in ("rest", "long gaps")
    ]


def test_default_order_is_compared_with_each_front_and_with_the_best_of_each_seed():
    found = turns("weft/resident", [4.0, 9.0]) + turns("weft/fcfs", [8.0, 9.0])
    found += turns("weft/plas", [16.0, 6.0]) + turns("a", [5.0, 20.0]) + turns("b", [8.0])
    _, ratios = tables(found)
    assert ratios["title"].startswith("w, weft/resident over the others")
    means = {row[0]: (row[1], row[2].split(" ")[0]) for row in ratios["rows"]}
    assert means == {
        "weft/fcfs": ("2", "0.707"),
        "weft/plas": ("2", "0.612"),
        "a": ("2", "0.600"),
        "b": ("1", "0.500"),
        # 4 over 5, and 9 over 20.
        "best peer of each seed": ("2", "0.600"),
        # 4 over 8, and 9 over 6.
        "best other order of each seed": ("2", "0.866"),
    }


def test_loads_of_a_workload_are_compared_separately():
    found = turns("peer", [1.0, 1.0]) + [
        replace(one, load=1.2) for one in turns("peer", [3.0, 3.0])
    ]
    titles = [one["title"] for one in tables(found)]
    assert [title.partition(",")[0] for title in titles] == ["w", "w at load 1.2"]
    means, _ = figures(found)
    values = {one.name: one.value for one in means}
    assert values["w/peer/all/mean"] == 1.0
    assert values["w at load 1.2/peer/all/mean"] == 3.0
