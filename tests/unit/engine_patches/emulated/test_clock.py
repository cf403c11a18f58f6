"""Steps of the emulated device in real time."""

from __future__ import annotations

import pytest
from weft_engine.emulated.clock import Counters, DeviceClock


class Machine:
    """A clock that advances only by sleeping, and by work."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def counters() -> Counters:
    return Counters()


def device(machine, counters, dilate=1.0, asynchronous=False):
    return DeviceClock(dilate, asynchronous, counters, machine.now, machine.sleep)


def test_work_between_two_steps_is_part_of_the_second_one(machine, counters):
    clock = device(machine, counters)
    clock.wait(clock.launch(0.010, busy=False))
    machine.time += 0.004
    clock.wait(clock.launch(0.010, busy=True))
    assert machine.time == pytest.approx(100.020)
    assert (counters.steps, counters.busy_s, counters.late_s) == (2, pytest.approx(0.020), 0)


def test_an_idle_device_starts_at_once(machine, counters):
    clock = device(machine, counters)
    clock.wait(clock.launch(0.010, busy=False))
    machine.time += 5
    clock.wait(clock.launch(0.010, busy=False))
    assert machine.time == pytest.approx(105.020)
    assert counters.late_s == 0


def test_work_that_is_longer_than_the_step_makes_the_device_late(machine, counters):
    clock = device(machine, counters)
    clock.wait(clock.launch(0.010, busy=False))
    machine.time += 0.015
    clock.wait(clock.launch(0.010, busy=True))
    assert machine.time == pytest.approx(100.025)
    # The time is lost: the next step starts now.
    clock.wait(clock.launch(0.010, busy=True))
    assert machine.time == pytest.approx(100.035)
    assert counters.late_s == pytest.approx(0.005)
    assert counters.late_share == pytest.approx(0.005 / 0.030)


def test_a_sleep_that_is_too_long_shortens_the_next_one(machine, counters):
    clock = device(machine, counters)
    clock.wait(clock.launch(0.010, busy=False))
    machine.time += 0.001
    end = clock.launch(0.010, busy=True)
    assert end == pytest.approx(100.020)
    assert counters.late_s == 0


def test_dilation_stretches_steps_and_not_engine_seconds(machine, counters):
    clock = device(machine, counters, dilate=4)
    clock.wait(clock.launch(0.010, busy=False))
    assert machine.time == pytest.approx(100.040)
    machine.time += 0.048
    clock.wait(clock.launch(0.010, busy=True))
    assert counters.busy_s == pytest.approx(0.020)
    assert counters.late_s == pytest.approx(0.002)


def test_asynchronous_steps_follow_each_other_without_a_gap(machine, counters):
    clock = device(machine, counters, asynchronous=True)
    first = clock.launch(0.010, busy=False)
    machine.time += 0.003
    second = clock.launch(0.010, busy=True)
    clock.wait(first)
    machine.time += 0.008
    third = clock.launch(0.010, busy=True)
    assert [first, second, third] == pytest.approx([100.010, 100.020, 100.030])
    assert counters.late_s == 0


def test_an_asynchronous_step_that_is_launched_too_late_is_counted(machine, counters):
    clock = device(machine, counters, asynchronous=True)
    clock.wait(clock.launch(0.010, busy=False))
    machine.time += 0.002
    assert clock.launch(0.010, busy=True) == pytest.approx(100.022)
    assert counters.late_s == pytest.approx(0.002)


def test_a_step_waits_for_its_blocks(machine, counters):
    clock = device(machine, counters)
    assert clock.launch(0.010, busy=False, not_before=100.5) == pytest.approx(100.510)


def test_without_steps_nothing_is_late(counters):
    assert counters.late_share == 0


def test_the_next_step_begins_after_the_running_one(machine, counters):
    clock = device(machine, counters, asynchronous=True)
    assert clock.begin() == 100.0
    clock.launch(0.010, busy=False)
    assert clock.begin() == pytest.approx(100.010)
    machine.time += 1
    assert clock.begin() == 101.0
