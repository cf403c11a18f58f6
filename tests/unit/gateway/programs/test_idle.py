"""Silences between calls, by kind of program."""

from __future__ import annotations

from weft_gateway.model import Opened, Program, ProgramKey, Thread
from weft_gateway.policies.retain.idle import IdlePolicy
from weft_gateway.programs.idle import IdleTimes, Kind

POLICY = IdlePolicy(shortest_s=10.0, longest_s=1000.0, enough=16)
QUICK, SLOW = Kind("t", "x-session-id", "m"), Kind("t", "metadata.session_id", "m")


def opened(last_s: float, *, name="p", created=False, calls=1) -> Opened:
    threads = tuple(Thread(f"c{n}", "main", "r0", last_s) for n in range(calls))
    program = Program(ProgramKey("t", name), 1.0, threads=threads, last_completion_s=last_s)
    return Opened(program, "r0", created)


def test_each_kind_has_a_time_of_its_own():
    times = IdleTimes(POLICY)
    for now in range(100, 116):
        times.opened(QUICK, opened(now - 4.0), float(now))
        times.opened(SLOW, opened(now - 99.0), float(now))
    assert times.idle_s(QUICK) == 16.0
    assert times.idle_s(SLOW) == 512.0
    assert times.sooner_s(QUICK) == 984.0
    assert times.idle_s(Kind("other", "x-session-id", "m")) == 1000.0


def test_only_silences_count():
    times = IdleTimes(POLICY)
    for now in range(100, 200):
        times.opened(QUICK, opened(now - 4.0, calls=2), float(now))  # beside another call
        times.opened(QUICK, opened(0.0, created=True), float(now))  # its first
    assert times.idle_s(QUICK) == 1000.0


def test_a_program_that_comes_back_after_its_end_was_silent_for_long():
    times = IdleTimes(POLICY)
    for now in range(100, 132):
        times.opened(QUICK, opened(now - 1.0), float(now))
    assert times.idle_s(QUICK) == 10.0
    for now in range(200, 216):
        times.ended([ProgramKey("t", f"p{now}")], float(now))
        times.opened(QUICK, opened(0.0, name=f"p{now}", created=True), now + 100.0)
    assert times.idle_s(QUICK) == 512.0


def test_old_silences_fade():
    times = IdleTimes(POLICY)
    for number in range(9000):
        now = 1e6 + number
        times.opened(QUICK, opened(now - (900.0 if number < 50 else 1.0)), now)
    assert times.idle_s(QUICK) == 10.0


def test_memory_is_bounded():
    times = IdleTimes(POLICY)
    for number in range(3000):
        times.opened(Kind("t", f"name{number}", "m"), opened(90.0), 100.0)
    times.ended([ProgramKey("t", str(number)) for number in range(9000)], 100.0)
    assert len(times._kinds) <= 1024
    assert len(times._ended) <= 4096


def test_what_nobody_has_named_is_kept_for_the_shortest_time_until_more_is_known():
    times = IdleTimes(IdlePolicy(300.0, 3600.0))
    assert times.idle_s(Kind("t", "lineage", "m")) == 300.0
    assert times.idle_s(Kind("t", "x-session-id", "m")) == 3600.0
