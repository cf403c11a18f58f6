"""The Gittins index of learned service."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.forecast import ServiceForecast, gittins


def learned(services: list[float]) -> ServiceForecast:
    found = ServiceForecast()
    for service_s in services:
        found.serve(0.0, service_s)
        found.end(service_s)
    return found


def test_before_anything_is_known_the_oldest_program_comes_first_whatever_its_service():
    levels = {ServiceForecast().level(service_s) for service_s in (0.1, 1, 4, 16, 64, 256)}
    assert len(levels) == 1


def test_among_programs_of_equal_service_the_oldest_comes_first():
    found = learned([20.0] * 200)
    levels = [found.level(service_s) for service_s in (18.0, 10.0, 2.0)]
    assert levels == sorted(set(levels))


def test_among_programs_of_heavy_tailed_service_the_one_with_the_least_comes_first():
    draw = Random(1)
    found = learned([0.2 * draw.paretovariate(0.8) for _ in range(2000)])
    levels = [found.level(service_s) for service_s in (0.1, 1.0, 8.0, 64.0)]
    assert levels == sorted(set(levels))


def test_programs_that_have_not_ended_count_with_the_service_they_attained():
    """Only the short ones of these have ended yet."""
    ended, both = learned([1.0] * 50), learned([1.0] * 50)
    for _ in range(50):
        both.serve(0.0, 40.0)
    both.end(1.0)
    assert both.hazards()[8] < ended.hazards()[8]
    assert both.level(4.0) > ended.level(4.0)


def test_a_set_up_cost_lowers_the_index():
    found = learned([2.0] * 50)
    assert found.level(1.9, 8.0) > found.level(1.9, 0.0)
    # A program that has nearly ended waits for one without a set-up cost that needs as much.
    assert found.level(0.0, 0.0) < found.level(1.9, 64.0)


def test_new_observations_replace_old_ones():
    found = learned([1.0] * 64)
    before = found.hazards()
    for _ in range(2000):
        found.serve(0.0, 30.0)
        found.end(30.0)
    assert found.hazards()[8] < before[8] / 10


def test_the_index_is_that_of_the_best_amount_of_service():
    """Of 1,000 programs 10 end in the first second and 498 in the next, after 1.707 s each on
    average over all."""
    hazards, widths = [0.01, 0.7], [1.0, 1.0]
    assert gittins(hazards, widths, 0.0) == pytest.approx(0.508 / 1.707, rel=0.01)
    assert gittins(hazards[1:], widths[1:], 0.0) == pytest.approx(0.7)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.booleans()), max_size=60))
def test_every_level_is_finite_whatever_is_observed(events):
    found = ServiceForecast()
    for before_s, after_s, ends in events:
        found.serve(before_s, after_s)
        if ends:
            found.end(after_s)
    for service_s in (0.0, 0.5, 1e3, 1e12):
        assert -64 < found.level(service_s, service_s) < 64


def test_programs_that_run_at_once_come_no_later_than_new_ones_before_one_has_ended():
    found = ServiceForecast()
    for service_s in range(1, 9):
        for _ in range(32):
            found.serve(service_s - 1.0, float(service_s))
    assert found.level(7.9) <= found.level(0.5)
