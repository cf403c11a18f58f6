"""Pictures of experiments."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest
from weft_bench.report.drawing import ForestRow, draw, files, forest
from weft_bench.studies.cells import Estimate
from weft_bench.studies.experiment import HeatMap, Plot, Series

_LINE = Series("plas", [1.0, 2.0], [Estimate(1.0, 0.9, 1.3), Estimate(2.0, 1.8, 2.2)])
_OTHER = Series("fcfs", [1.0, 2.0], [Estimate(2.0, 1.9, 2.3), Estimate(3.0, 2.8, 3.2)])
_PLOTS = [
    Plot("load", "latency, s", [("left", [_LINE]), ("right", [_OTHER, _LINE])]),
    Plot("load", "p95, s", [("alone", [_LINE])], log_y=True),
    Plot("load", "p99, s", [(str(n), [_LINE]) for n in range(4)], bars=False),
]
_MAP = HeatMap(
    "load",
    "cache, contexts",
    "latency over the best other order's",
    [
        (
            "swe",
            {
                (0.8, 4.0): (Estimate(0.5, 0.4, 0.6), "mlfq"),
                (1.2, 8.0): (Estimate(1.1, 0.9, 1.4), "fcfs"),
                (1.2, 4.0): (Estimate(nan, nan, nan), "fcfs"),
            },
        )
    ],
    file="-map",
)
_ROWS = [
    ForestRow("emulated: coding, mean", Estimate(0.81, 0.76, 0.87), "better", 0.7),
    ForestRow("simulated: swe, P95", Estimate(1.3, 1.2, 1.4), "worse"),
    ForestRow("simulated: bfcl, P95", Estimate(1.0, 0.9, 1.1), "no difference shown"),
]


@pytest.mark.slow
def test_equal_figures_give_equal_plots(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw(tmp_path / f"{name}.svg", _PLOTS, "title")
        draw(tmp_path / f"{name}-map.svg", [_MAP], "title")
        forest(tmp_path / f"{name}-forest.svg", _ROWS, "title")
    for end in ("", "-map", "-forest"):
        assert (tmp_path / f"a{end}.svg").read_bytes() == (tmp_path / f"b{end}.svg").read_bytes()


def test_lines_have_labels_units_and_one_legend(tmp_path: Path) -> None:
    draw(tmp_path / "p.svg", _PLOTS, "Latency")
    text = (tmp_path / "p.svg").read_text()
    for shown in ("Latency", "left", "load", "latency, s", "p99, s"):
        assert f">{shown}<" in text
    assert text.count(">plas<") == text.count(">fcfs<") == 1


def test_map_shows_each_ratio_with_its_interval_and_rival(tmp_path: Path) -> None:
    draw(tmp_path / "m.svg", [_MAP], "Map")
    text = (tmp_path / "m.svg").read_text()
    for shown in ("swe", "load", "cache, contexts", "0.50", "0.40 to 0.60", "mlfq", "1.10", "0.8"):
        assert f">{shown}<" in text
    assert "less is better" in text


def test_map_has_the_color_of_the_ratio(tmp_path: Path) -> None:
    def shade(ratio: float) -> str:
        one = HeatMap("x", "y", "r", [("p", {(1.0, 1.0): (Estimate(ratio, ratio, ratio), "")})])
        draw(tmp_path / "c.svg", [one], "c")
        text = (tmp_path / "c.svg").read_text()
        # The only field of the map.
        return text.partition("QuadMesh_1")[2].partition("fill: #")[2][:6]

    better, worse = shade(0.6), shade(1.6)
    assert int(better[4:], 16) > int(better[:2], 16)
    assert int(worse[:2], 16) > int(worse[4:], 16)


def test_forest_shows_each_row_with_its_interval(tmp_path: Path) -> None:
    forest(tmp_path / "f.svg", _ROWS, "Ratios")
    text = (tmp_path / "f.svg").read_text()
    for row in _ROWS:
        assert f">{row.label}<" in text
        assert f">{row.ratio}<" in text
        assert f">{row.verdict}<" in text
    assert ">goal<" in text


def test_forest_without_goals_has_no_goal_in_its_legend(tmp_path: Path) -> None:
    forest(tmp_path / "f.svg", _ROWS[1:], "Ratios")
    assert ">goal<" not in (tmp_path / "f.svg").read_text()


def test_drawings_are_grouped_by_file() -> None:
    assert [(end, len(drawn)) for end, drawn in files([_MAP, *_PLOTS])] == [("-map", 1), ("", 3)]
