"""Rows of figures on the terminal and in files."""

from __future__ import annotations

import pytest
from weft_bench.report.rows import Column, figures, markdown, show

COLUMNS = (
    Column("time", "s", "time, us", ",.0f", 1e6),
    Column("count", "calls"),
    Column("ratio", "1", "ratio", ".2f"),
)
ROWS = {("a", "x"): {"time": 0.0015, "count": 3}, ("b", "x"): {"time": 2e-6, "ratio": 0.5}}


def test_files_have_every_value_with_its_unit():
    assert [(f.name, f.value, f.unit) for f in figures(ROWS, COLUMNS)] == [
        ("a/x/time", 0.0015, "s"),
        ("a/x/count", 3, "calls"),
        ("b/x/time", 2e-6, "s"),
        ("b/x/ratio", 0.5, "1"),
    ]


def test_terminals_have_the_columns_with_a_heading(capsys: pytest.CaptureFixture[str]):
    show("A title", ("name", "kind"), ROWS, COLUMNS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A title"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:5]]
    assert cells[0] == ["name", "kind", "time, us", "ratio"]
    assert cells[2:] == [["a", "x", "1,500", "-"], ["b", "x", "2", "0.50"]]


def test_markdown_escapes_column_separators():
    assert markdown(("order", "x"), [("a|b", "1")]).splitlines()[-1].startswith("| a\\|b ")
    assert len(markdown(("order",), []).splitlines()) == 2
