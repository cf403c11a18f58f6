"""Records of calls and programs."""

from __future__ import annotations

import json

import pytest
from weft_bench.virtual.records import CallRecord, PrefillRecord, Simulation, program_record


def call(number, replica, end, **values):
    return CallRecord("p", number, replica, 0.0, 10, end_s=end, **values)


def test_program_record_sums_its_calls():
    calls = [
        call(0, "a", 4.0, output_tokens=2, service_s=1.0, cached_tokens=3),
        call(1, "b", 9.0, output_tokens=3, service_s=2.5, waiting_s=1.0, preemptions=1),
        call(2, "b", 6.0, output_tokens=5, service_s=0.5),
    ]
    program = program_record("p", 1.0, calls)
    assert (program.calls, program.output_tokens, program.prompt_tokens) == (3, 10, 30)
    assert (program.service_s, program.waiting_s, program.cached_tokens) == (4.0, 1.0, 3)
    assert (program.migrations, program.replicas, program.preemptions) == (1, ("a", "b"), 1)
    assert program.response_s == 8.0
    assert program.token_latency_s == pytest.approx(0.8)


def test_lines_contain_every_record():
    calls = [call(0, "a", 4.0, output_tokens=2)]
    lines = Simulation(calls, [program_record("p", 1.0, calls)], 4.0).lines().splitlines()
    assert [json.loads(line)["end_s"] for line in lines] == [4.0, 4.0]


def test_prefills_have_separate_lines():
    calls = [call(0, "a", 4.0, output_tokens=2)]
    programs = [program_record("p", 1.0, calls)]
    ahead = PrefillRecord("p", 1, "a", 2.0, 10)
    found = Simulation(calls, programs, 4.0, prefills=[ahead])
    assert found.lines().startswith(Simulation(calls, programs, 4.0).lines())
    assert json.loads(found.lines().splitlines()[-1])["arrival_s"] == 2.0


def test_rendered_time_is_the_first_token_of_the_last_call():
    calls = [
        call(1, "a", 9.0, output_tokens=2, first_token_s=8.0),
        call(0, "a", 4.0, output_tokens=2, first_token_s=8.5),
    ]
    assert Simulation(calls, [program_record("p", 1.0, calls)], 9.0).rendered_s() == [7.0]
