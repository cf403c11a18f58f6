"""The cells to play."""

from __future__ import annotations

import pytest
from weft_bench.gpu.cells import FEWEST, Cell, by_system, cells, count, plateau


def test_a_cell_shares_its_scene_with_the_other_systems():
    one, other = Cell("ours", "lats", 1.0), Cell("vllm", "lats", 1.0)
    assert one.key == "lats/1/ours"
    assert one.scene == other.scene == "lats/1"


def test_an_engine_is_started_once_for_all_its_cells():
    found = cells(("b", "a"), ("x", "y"), (0.5, 1.0))
    assert len(found) == len({cell.key for cell in found}) == 8
    assert [(system, len(part)) for system, part in by_system(found)] == [("b", 4), ("a", 4)]


def test_number_of_programs_follows_the_rate_with_a_minimum():
    assert count(2.0, 60.0) == 120
    assert count(0.001, 60.0) == FEWEST


def test_capacity_is_measured_while_the_engine_is_full():
    # It fills up for ten seconds, is full for forty at 10 tokens/s, and drains for a hundred.
    made, samples = 0.0, []
    for second in range(150):
        made += 5.0 if second < 10 else 10.0 if second < 50 else 0.5
        samples.append((float(second), made))
    assert plateau(samples) == pytest.approx(10.0, rel=0.05)


@pytest.mark.parametrize("samples", [[], [(0.0, 0.0)], [(0.0, 0.0), (1.0, 0.0)], [(0.0, 5.0)]])
def test_capacity_is_zero_without_tokens(samples):
    assert plateau(samples) == 0.0


def test_two_samples_are_enough():
    assert plateau([(0.0, 0.0), (2.0, 8.0)]) == 4.0
