"""The table of workloads."""

from __future__ import annotations

import pytest
from weft_bench.workloads.command import Described, figures, markdown, number, show

ROW = Described("w", "a paper", {"calls mean": 2, "gap mean": 9}, {"calls mean": 2.1, "kept": 0.5})


def test_published_figures_are_shown_with_measured_ones(capsys):
    show([ROW])
    line = next(x for x in capsys.readouterr().out.splitlines() if "calls mean" in x)
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["calls mean", "1", "2", "2.10"]


def test_figures_have_units_and_published_values():
    found = {figure.name: (figure.value, figure.unit) for figure in figures([ROW])}
    assert found == {
        "w/calls mean": (2.1, "1"),
        "w/calls mean/published": (2, "1"),
        "w/kept": (0.5, "1"),
    }


def test_document_has_one_row_per_workload():
    def last(row):
        return [cell.strip() for cell in markdown([row]).splitlines()[-1].strip("|").split("|")]

    assert last(ROW) == ["`w`", "a paper", "calls mean 2", "calls mean 2.10; kept 0.50"]
    bare = Described("w", "s", {}, {"calls mean": 1, "calls max": 3})
    assert last(bare) == ["`w`", "s", "nothing", "calls mean 1, max 3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2"),
        (1234.5, "1,234"),
        (123.45, "123.5"),
        (10.75, "10.75"),
        (0.256, "0.26"),
        (0.0337, "0.034"),
    ],
)
def test_numbers_have_their_significant_digits(value, text):
    assert number(value) == text
