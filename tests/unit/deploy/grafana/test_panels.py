"""The grid and the variables of a dashboard."""

from __future__ import annotations

import pytest
from weft_deploy.grafana.panels import JSON, Choice, Panel, Query, dashboard


def board(per_row: list[int], choices: tuple[Choice, ...] = ()) -> JSON:
    panels = [
        Panel(f"panel {n}", "", "s", (Query("weft_programs", "all"),), per_row=width)
        for n, width in enumerate(per_row)
    ]
    return dashboard("uid", "Title", panels, choices)


@pytest.mark.parametrize(
    "per_row", [[1], [2, 2], [2, 2, 2], [4, 4, 4, 4, 2, 2], [3, 2, 1], [4, 1, 4]]
)
def test_panels_fill_the_grid_without_overlap(per_row: list[int]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board(per_row)["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken
        taken |= cells


def test_panel_ids_are_unique() -> None:
    numbers = [panel["id"] for panel in board([2, 2, 2])["panels"]]
    assert len(set(numbers)) == 3


def test_queries_of_a_panel_have_letters_as_ids() -> None:
    panel = Panel("p", "", "s", tuple(Query("weft_programs", str(n)) for n in range(3)))
    (made,) = dashboard("uid", "Title", [panel], ())["panels"]
    assert [target["refId"] for target in made["targets"]] == ["A", "B", "C"]


def test_the_first_choice_is_the_default() -> None:
    (variable,) = board([1], (Choice("slo", "In time", ("2.5", "10.0")),))["templating"]["list"]
    assert variable["current"]["value"] == "2.5"
    assert [option["selected"] for option in variable["options"]] == [True, False]
    assert variable["query"] == "2.5,10.0"


def test_a_stat_panel_has_no_line_options() -> None:
    panel = Panel("p", "", "short", (Query("weft_programs", "all"),), kind="stat")
    (made,) = dashboard("uid", "Title", [panel], ())["panels"]
    assert made["type"] == "stat"
    assert "custom" not in made["fieldConfig"]["defaults"]
