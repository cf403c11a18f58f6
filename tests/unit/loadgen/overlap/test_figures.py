"""The report of the overlap bench."""

from __future__ import annotations

import pytest
from weft_bench.overlap import command as overlap
from weft_bench.overlap.player import ROWS, Result
from weft_bench.report.rows import figures


def result(number, ftr, e2e, tool=0.0, **more):
    return Result(number, ftr, e2e, tool, prompt_tokens=100, computed_tokens=80, **more)


BASELINE = [[result(0, 2.0, 4.0, 1.0), result(1, 4.0, 6.0, 1.0)], [result(0, 6.0, 8.0, 3.0)]]
BETTER = [
    [
        result(0, 1.0, 3.0, extended=1, dispatched=2, saved_s={"prefill": 0.6, "dispatch": 0.3}),
        result(1, 3.0, 5.0, extended=2),
    ],
    [Result(0, errors=["500"])],
]
ALL = {ROWS[0].name: BASELINE, ROWS[3].name: BETTER}


def values(rows):
    return {
        figure.name: (figure.value, figure.unit)
        for figure in figures(overlap.rows(rows), overlap.COLUMNS)
    }


def test_figures_of_a_row_cover_all_its_seeds():
    found = values(ALL)
    assert found["baseline/ftr_p50"] == (4.0, "s")
    assert found["baseline/e2e_p50"] == (6.0, "s")
    assert found["baseline/tool_share_p50"] == (0.5, "1")
    assert found["baseline/hit_rate"][0] == pytest.approx(0.2)
    assert found["baseline/requests"] == (3, "requests")


def test_failed_request_counts_only_as_an_error():
    found = values(ALL)
    assert found["+ tags/errors"] == (1, "requests")
    assert found["+ tags/requests"] == (2, "requests")
    assert found["+ tags/ftr_p50"][0] == 2.0
    assert found["+ tags/saved_prefill_s"][0] == pytest.approx(0.3)
    assert (found["+ tags/extended"][0], found["+ tags/dispatched"][0]) == (3, 2)


def test_rows_are_compared_with_the_first_by_request():
    found = values(ALL)
    assert found["+ tags/ftr_p50_less"] == (pytest.approx(50.0), "%")
    assert found["baseline/ftr_p50_less"][0] == 0
    # The first request saves half of 2 s, the second a quarter of 4 s. The third failed.
    assert overlap.paired(BETTER, BASELINE) == pytest.approx([50.0, 25.0])
    assert found["+ tags/ftr_less_paired_p75"][0] == pytest.approx(43.75)
    assert found["+ tags/ftr_less_paired"][0] == pytest.approx(37.5)


def test_the_table_has_the_papers_figures(capsys):
    overlap.show(ALL)
    printed = capsys.readouterr().out
    line = next(x for x in printed.splitlines() if "+ tags" in x)
    assert {"50.0", "16.2", "10.8"} <= {cell.strip() for cell in line.split("|")}
    assert "3 requests a row" in printed


def test_rows_with_only_failures_are_shown():
    failed = {ROWS[0].name: [[Result(0, errors=["x"])]], ROWS[1].name: [[Result(0, errors=["x"])]]}
    assert values(failed)["baseline/errors"][0] == 1
