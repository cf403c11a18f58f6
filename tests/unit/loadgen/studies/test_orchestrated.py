"""Sutradhara's systems, played."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import Cell, cells
from weft_bench.studies.orchestrated import (
    ALL,
    BASELINE,
    MODES,
    PINNED,
    SHARES,
    SPLIT,
    WIDE,
    measure,
    played,
)

pytestmark = pytest.mark.engine


def _cell(mode: str, workload: str = WIDE) -> Cell:
    return cells(1, mode=mode, workload=workload, programs=5, rate=0.02)[0]


@pytest.mark.slow
def test_overlap_renders_the_answer_sooner() -> None:
    baseline, split, every = (measure(_cell(mode)) for mode in (BASELINE, SPLIT, ALL))
    assert max(every["ftr_p50"], split["ftr_p50"]) < baseline["ftr_p50"]
    assert every["e2e_p50"] < baseline["e2e_p50"]
    assert baseline["ahead"] == baseline["ahead_service"] == 0.0
    assert split["ahead"] > 0.1
    assert 0.0 < split["ahead_service"] < 1.0


@pytest.mark.slow
def test_percentiles_increase_and_the_last_token_follows_the_first() -> None:
    found = measure(_cell(PINNED))
    line = [found[f"ftr_p{share}"] for share in SHARES]
    assert line == sorted(line)
    assert found["e2e_p50"] > found["ftr_p50"]


def test_every_mode_has_the_baselines_order() -> None:
    assert {mode.order for mode in MODES.values()} == {MODES[BASELINE].order}
    assert not MODES[BASELINE].overlap.split
    assert not MODES[BASELINE].overlap.dispatch


def test_modes_are_played_on_the_same_programs() -> None:
    found = played(True, (BASELINE, ALL), (0.01,))
    assert {cell.text("mode") for cell in found} == {BASELINE, ALL}
    assert len({tuple(s for s in c.settings if s[0] != "mode") for c in found}) == 1
