"""`weft bench fit --agreement`: tables and missed goals."""

from __future__ import annotations

import pytest
from support.agreement import pair, played
from weft_bench.agreement.compare import Delay
from weft_bench.agreement.report import Agreement, missed, tables

SAME = {2: played(4.0, busy_s=8.0), 4: played(4.1, busy_s=8.2)}


def agreement(goal=0.1, **pairs):
    return {"warm": Agreement(Delay(0.006, 5e-6), pairs, goal)}


@pytest.mark.parametrize(
    ("emulated", "late_s", "says"),
    [
        (4.39, 0.09, []),
        (3.61, 0.0, []),
        (4.42, 0.0, ["warm, fcfs: emulated over virtual is 1.105"]),
        (3.58, 0.0, ["warm, fcfs: emulated over virtual is 0.895"]),
        (4.0, 0.1, ["warm, fcfs: 1.00% late"]),
    ],
)
def test_a_case_misses_by_its_ratio_and_its_lateness(emulated, late_s, says):
    assert missed(agreement(fcfs=pair([emulated], [[4.0, 4.0]], late_s)), SAME) == says


def test_a_case_has_its_own_goal():
    pairs = {"fcfs": pair([4.3], [[4.0, 4.0]])}
    assert missed(agreement(**pairs), SAME) == []
    assert missed(agreement(0.05, **pairs), SAME) == ["warm, fcfs: emulated over virtual is 1.075"]


def test_a_difference_within_the_noise_misses_no_goal():
    assert missed(agreement(fcfs=pair([4.5], [[3.0, 5.0]])), SAME) == []


def test_orders_that_rank_differently_miss_the_goal():
    found = agreement(fcfs=pair([4.0], [[4.1, 4.1]]), plas=pair([4.1], [[4.0, 4.0]]))
    assert missed(found, SAME) == ["warm: fcfs and plas rank differently"]


@pytest.mark.parametrize(
    ("slow", "says"),
    [
        (played(4.0, busy_s=8.3), ["dilations: the device's busy time differs by 3.8%"]),
        (played(4.2, busy_s=8.0), ["dilations: the mean program differs by 5.0%"]),
        (played(4.0, busy_s=8.0, call_s=1.1), ["dilations: the mean call differs by 10.0%"]),
        (played(4.0, busy_s=8.0, late_s=0.16), ["dilation 4: 2.00% late"]),
    ],
)
def test_dilations_miss_by_their_figures_and_their_lateness(slow, says):
    assert missed({}, {2: played(4.0, busy_s=8.0), 4: slow}) == says


def test_tables_have_a_row_for_each_order_case_and_dilation():
    found = agreement(fcfs=pair([4.0], [[4.1, 4.1]]), plas=pair([4.1], [[4.0, 4.0]]))
    orders, ranking, dilations = tables(found, SAME)
    for table in (orders, ranking, dilations):
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    assert [row[:6] for row in orders["rows"]] == [
        ["warm", "fcfs", "4.000", "4.100", "0.976", "0.90 to 1.10"],
        ["warm", "plas", "4.100", "4.000", "1.025", "0.90 to 1.10"],
    ]
    assert ranking["rows"] == [["warm", "-1.00", "fcfs and plas", "1.000", "0.0060", "0.0050"]]
    assert [row[0] for row in dilations["rows"]] == ["2", "4"]
