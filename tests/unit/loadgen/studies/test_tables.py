"""Tables from measured cells."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from weft_bench.studies.cells import Measured, cells, measured
from weft_bench.studies.study import Study
from weft_bench.studies.tables import ratio, tables

_LATENCY = {"slow": 2.0, "fast": 1.0}


def _found(rates: tuple[float, ...] = (0.5, 1.0)) -> Measured:
    """Return a latency that grows with the rate, and differs between seeds."""
    return measured(
        (cell, {"latency": of * rate * (1 + cell.seed), "hits": 0.0})
        for case in ("a", "b")
        for rate in rates
        for system, of in _LATENCY.items()
        for cell in cells(2, case=case, rate=rate, system=system)
    )


def _shown(columns: dict[str, Any], rows: list[str], **table: Any) -> list[list[str]]:
    made = {"title": "", "rows": rows, "columns": columns, **table}
    values = {
        "name": "one",
        "title": "",
        "source": "",
        "measure": "programs",
        "systems": {name: {} for name in _LATENCY},
        "cases": {},
        "quick": {},
        "tables": [made],
    }
    (found,) = tables(msgspec.convert(values, Study), _found())
    return [list(row) for row in found.rows]


def test_a_row_has_its_labels_its_mean_and_its_ratio_to_a_system() -> None:
    columns = {"s": "latency", "over": {"figure": "latency", "over": "slow"}}
    rows = _shown(columns, ["case", "rate", "system"], cases=["b"])
    assert [row[:3] for row in rows] == [
        ["b", rate, system] for rate in ("0.5", "1.0") for system in ("slow", "fast")
    ]
    assert rows[0][3].startswith("1.50")
    assert [row[4] for row in rows] == ["-", "0.500", "-", "0.500"]


def test_ours_is_compared_with_each_row_over_all_scenes() -> None:
    assert _shown({"fast": {"figure": "latency", "of": "fast"}}, ["system"]) == [
        ["slow", "0.500"],
        ["fast", "-"],
    ]


def test_a_mean_over_different_scenes_is_refused() -> None:
    with pytest.raises(ValueError, match="several settings"):
        _shown({"s": "latency"}, ["system"])


def test_loads_are_compared_at_an_equal_latency() -> None:
    # The fast system has at twice the load what the slow one has, which is its greatest load.
    columns = {"load": {"figure": "latency", "over": "slow", "load": "row"}}
    rows = _shown(columns, ["rate", "system"], cases=["a"])
    assert [row[2] for row in rows] == ["-", "≥ 2.00", "-", "not measured"]
    # Twice the latency of the fast system at the lightest load is that of the slow one there.
    columns = {"load": {"figure": "latency", "of": "fast", "load": "fast"}}
    assert _shown(columns, ["case", "system"], cases=["a"])[0][2] == "≥ 2.00"


def test_one_column_a_level_and_published_text() -> None:
    columns = {
        "at": {"figure": "latency", "each": "rate"},
        "told": {"published": {"a, fast": "7"}},
    }
    rows = _shown(columns, ["case", "system"], cases=["a"])
    assert [row[-1] for row in rows] == ["-", "7"]
    assert len(rows[0]) == 5


def test_scenes_of_one_system_only_and_zeros_are_left_out_of_ratios() -> None:
    found = _found()
    slow = found.where(system="slow")
    assert ratio(found.where(system="fast"), slow, "latency").middle == pytest.approx(0.5)
    assert str(ratio(found.where(system="fast", case="a"), slow, "latency")) == "0.500"
    assert str(ratio(found.where(system="fast"), slow, "hits")) == "-"
