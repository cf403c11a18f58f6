"""Workloads on which Weft is expected to lose, played."""

from __future__ import annotations

import pytest
from weft_bench.studies.cells import cells
from weft_bench.studies.edges import OTHERS, OURS, RIVAL, measure


@pytest.mark.slow
@pytest.mark.engine
def test_all_systems_end_the_same_programs() -> None:
    systems = (OURS, RIVAL, *OTHERS)
    found = {
        system: measure(cells(1, edge="tiny answers", programs=40, system=system)[0])
        for system in systems
    }
    assert {one["latency"] > 0 for one in found.values()} == {True}
    # The rival that this workload was made for is one of the others.
    assert found[RIVAL] == found["vllm-opt"] != found[OURS]


def test_unknown_system_is_an_error() -> None:
    with pytest.raises(KeyError):
        measure(cells(1, edge="tiny answers", programs=1, system="another")[0])
