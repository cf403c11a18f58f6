"""Tables of the experiments on balancers and on more replicas."""

from __future__ import annotations

import pytest
from support.experiments import made_up
from weft_bench.studies.agentix_replicas import FIGURE_14, FIGURE_15


def test_balancers_are_compared_with_wefts_in_every_scene() -> None:
    slower = {"round_robin": 1.5, "least_used": 1.2, "prefix_tree": 1.0, "locality": 1.0}
    found = made_up(
        FIGURE_14, lambda cell: 1.0 + 10 * slower[cell.text("balancer")] * cell.number("rate")
    )
    first, *scenes = FIGURE_14.tables(found)
    assert [table.title.partition(":")[0] for table in scenes] == [
        "sharegpt, 4 x 8b-a100",
        "sharegpt, 2 x 70b-a100",
        "lats, 4 x 8b-a100",
        "lats, 2 x 70b-a100",
    ]
    over = {row[2]: row[3] for row in first.rows[:3]}
    assert over["round_robin"] == "1.50"
    assert over["prefix_tree"] == "1.00"
    assert [len(plot.panels) for plot in FIGURE_14.plots(found)] == [4, 4, 4]


@pytest.mark.parametrize(("power", "share"), [(1.0, "1.00"), (0.5, "0.354")])
def test_proportional_load_of_replicas_is_linear(power: float, share: str) -> None:
    found = made_up(
        FIGURE_15, lambda cell: 1.0 + cell.number("rate") / cell.number("replicas") ** power
    )
    (table,) = FIGURE_15.tables(found)
    last = [row for row in table.rows if row[0] == "1.5 x"][-1]
    assert last[1] == "8"
    assert last[-1] == share


def test_load_that_never_saturates_is_a_lower_bound() -> None:
    found = made_up(FIGURE_15, lambda cell: 1.0)
    (table,) = FIGURE_15.tables(found)
    assert all(row[2].startswith("≥") for row in table.rows)
