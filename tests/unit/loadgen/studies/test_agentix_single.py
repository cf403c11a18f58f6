"""Tables, plots and headlines of Agentix's experiments."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from weft_bench.studies.agentix_single import FIGURE_12, FIGURE_13, load_cells
from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.simulating import UNTOLD

# Slowdown factor of each system.
_SLOWER: Mapping[str, float] = {
    "vllm": 3.0,
    "vllm-opt": 1.5,
    "mlfq": 1.2,
    "plas": 1.1,
    "atlas": 1.05,
    "weft": 1.0,
    UNTOLD: 1.0,
}


def _values(cell: Cell, slower: Mapping[str, float]) -> dict[str, float]:
    """Return latencies that double with every 0.1 programs per second."""
    factor = slower[cell.text("system")]
    latency = 0.01 * 2.0 ** (factor * cell.number("rate") / 0.1)
    return {
        "latency": 1000 * latency,
        "token_latency": latency,
        "steady_token_latency": latency,
        "token_latency_p95": 2 * latency,
        "token_latency_p99": 3 * latency,
        "hit_rate": 0.5,
    }


def _measured(slower: Mapping[str, float] = _SLOWER) -> Measured:
    return measured((cell, _values(cell, slower)) for cell in load_cells(quick=False))


@pytest.fixture(scope="module")
def found() -> Measured:
    return _measured()


def test_throughput_is_shown_with_the_published_figures(found: Measured) -> None:
    table = FIGURE_12.tables(found)[0]
    row = {(row[0], row[1]): row for row in table.rows}
    assert [one[-1] for one in table.rows if one[0] == "lats"] == ["5", "2", "2.5", "-", "-"]
    # The latency doubles every 0.1 / factor programs per second, so the ratio is 1.5, except for
    # the linear interpolation between measured points.
    shown = row["sharegpt", "vllm-opt"][table.columns.index("weft, mean")]
    assert float(shown.split()[0]) == pytest.approx(1.5, rel=0.15)
    assert row["lats", "vllm-opt"] != row["sharegpt", "vllm-opt"]


def test_latencies_are_tables_of_systems_and_loads(found: Measured) -> None:
    table = next(t for t in FIGURE_12.tables(found) if t.title.startswith("bfcl"))
    assert [row[0] for row in table.rows] == [
        "vllm",
        "vllm-opt",
        "mlfq",
        "plas",
        "weft",
        UNTOLD,
    ]
    assert len(table.columns) == 6
    assert "120 programs" in table.title


def test_tails_use_the_same_cells(found: Measured) -> None:
    assert FIGURE_12.cells(True) == FIGURE_13.cells(True)
    assert FIGURE_12.measure is FIGURE_13.measure
    titles = [table.title for table in FIGURE_13.tables(found)]
    assert sum("P95 of" in title for title in titles) == sum("P99 of" in title for title in titles)


def test_plots_have_one_panel_per_workload(found: Measured) -> None:
    (plot,) = FIGURE_12.plots(found)
    assert [name for name, _ in plot.panels] == ["sharegpt", "bfcl", "lats", "mixed"]
    assert len(FIGURE_13.plots(found)) == 2


def test_headline_reports_losses_of_weft() -> None:
    scores = FIGURE_12.headline(_measured({**_SLOWER, "weft": 2.0, UNTOLD: 2.0})).scores
    assert {score.outcome for score in scores} == {"lost"}


def test_claims_are_about_agentix_and_not_about_weft(found: Measured) -> None:
    claims = {claim.score.name: claim for claim in FIGURE_12.claims(found)}
    assert len(claims) == 8
    claim = claims["lats: load at equal mean token latency, atlas over mlfq"]
    assert (claim.published, claim.target) == ("up to 2.5", 2.5)
    assert claim.hit_rates == {"atlas": 0.5, "mlfq": 0.5}
    assert claim.ratio.ratio.middle == pytest.approx(1.2 / 1.05, rel=0.15)
    single = claims["bfcl: load at equal mean token latency, plas over vllm-opt"]
    assert single.ratio.ratio.middle == pytest.approx(1.5 / 1.1, rel=0.15)
    tails = [claim.published for claim in FIGURE_13.claims(found)]
    assert tails == ["up to 1.7"] * 16
