"""The report of the tags bench."""

from __future__ import annotations

import pytest
from weft_bench.report.tags import COLUMNS, Row


def test_first_calls_are_counted_separately() -> None:
    found = Row(
        roles=[0.5, 0.9, 1.0], wire=[0.6, 1.0, 1.0], plain=[0.1, 0.2, 0.4],
        tokens_off=[0.3, 0.02, 0.04], seconds=[1e-3, 5e-5, 7e-5], learn_s=[1e-5, 1e-5, 1e-5],
        warm_up=1,
    ).values()  # fmt: skip
    assert set(found) == {column.figure for column in COLUMNS}
    assert found["calls"] == 3
    assert found["roles_mean"] == pytest.approx(0.95)
    assert found["first_roles_mean"] == pytest.approx(0.5)
    assert found["wire_p5"] == pytest.approx(1.0)
    assert found["plain_mean"] == pytest.approx(0.3)
    assert found["tokens_off_p50"] == pytest.approx(0.03)
    assert found["tag_p50"] == pytest.approx(7e-5)
