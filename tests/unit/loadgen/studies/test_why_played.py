"""Orders in worlds with different caches."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import cells
from weft_bench.studies.simulating import OURS
from weft_bench.studies.why import ENDLESS, NONE, SHORT, UNTOLD, measure


@pytest.mark.slow
@pytest.mark.engine
def test_hit_rate_follows_the_world() -> None:
    found = {}
    for world in (SHORT, ENDLESS, NONE):
        settings = {"workload": "bfcl", "programs": 6, "rate": 2.0, "world": world}
        found[world] = measure(cells(1, order="plas", **settings)[0])
    assert found[NONE]["hit_rate"] == 0.0
    assert 0.0 < found[SHORT]["hit_rate"] <= found[ENDLESS]["hit_rate"] < 1.0
    assert all(0.0 <= one["waiting"] < 1.0 for one in found.values())


@pytest.mark.slow
@pytest.mark.engine
def test_program_ends_change_the_hit_rate() -> None:
    scene = {"workload": "bfcl", "programs": 20, "world": SHORT, "rate": 1.0}
    with_ends, without_ends = (
        measure(cells(1, order=order, **scene)[0]) for order in (OURS, UNTOLD)
    )
    assert without_ends["hit_rate"] != with_ends["hit_rate"]
