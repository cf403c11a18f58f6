"""The report of the tags bench."""

from __future__ import annotations

import pytest
from weft_bench.report.tags import Row, figures, show

MEASURED = {
    ("demo", "airline"): Row(
        roles=[0.5, 0.9, 1.0], wire=[0.6, 1.0, 1.0], plain=[0.1, 0.2, 0.4],
        tokens_off=[0.3, 0.02, 0.04], seconds=[1e-3, 5e-5, 7e-5], learn_s=[1e-5, 1e-5, 1e-5],
        warm_up=1,
    )
}  # fmt: skip


def test_the_first_calls_are_counted_apart() -> None:
    found = {f.name: (f.value, f.unit) for f in figures(MEASURED)}
    assert found["demo/airline/calls"] == (3, "1")
    assert found["demo/airline/roles_mean"] == (pytest.approx(0.95), "1")
    assert found["demo/airline/first_roles_mean"] == (pytest.approx(0.5), "1")
    assert found["demo/airline/wire_p5"] == (pytest.approx(1.0), "1")
    assert found["demo/airline/plain_mean"] == (pytest.approx(0.3), "1")
    assert found["demo/airline/tokens_off_p50"] == (pytest.approx(0.03), "1")
    assert found["demo/airline/tag_p50"] == (pytest.approx(7e-5), "s")


def test_the_table_shows_percent_and_microseconds(capsys: pytest.CaptureFixture[str]) -> None:
    show(MEASURED, "Tags")
    shown = capsys.readouterr().out
    assert "airline" in shown
    assert "95.0" in shown
    assert " 70 " in shown
