"""Invariants of every simulation, and a comparison with queueing theory."""

from __future__ import annotations

from collections import defaultdict
from math import sqrt
from statistics import mean, stdev

import pytest
from msgspec import structs
from support.shared_prompts import REPLICAS, document, hit_rate, homes, homes_of, play
from support.simulated import chats, engine, ready, single, ticking
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.replica import SimulationError
from weft_bench.virtual.world import Setup, simulate
from weft_bench.workloads.schema import Part, TraceCall
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_engine.emulated.cost_model import CostModel

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def busy(policy="plas", seed=1, balancer="locality"):
    """Simulate two unequal replicas under overload. Return the programs and the records."""
    programs = chats(seed, 25, wide=True)
    shapes = [engine(slots=4, kv_blocks=150), engine(slots=2)]
    arrivals = poisson_arrivals(stream(seed, "arrivals"), 20.0, len(programs))
    options = {"first_quantum_s": 0.25}
    return programs, simulate(
        programs, arrivals, Setup(shapes, EngineSettings(policy, options), balancer, 300)
    )


@pytest.mark.parametrize("policy", ["fcfs", "plas"])
def test_every_call_ends_once_and_no_state_is_left(policy):
    programs, played = busy(policy)
    wanted = {(p.id, n): c for p in programs for n, c in enumerate(p.calls)}
    assert sorted((c.program, c.number) for c in played.calls) == sorted(wanted)
    for call in played.calls:
        assert call.output_tokens == wanted[call.program, call.number].max_tokens
        assert call.prompt_tokens == wanted[call.program, call.number].prompt_tokens
    assert sum(p.calls for p in played.programs) == len(played.calls)
    # Blocks in use, books open in the schedulers, rows and calls in the process table.
    assert played.violations == ()


def test_causes_precede_effects():
    programs, played = busy()
    calls = {(c.program, c.number): c for c in played.calls}
    for call in played.calls:
        assert 0 <= call.arrival_s <= call.start_s < call.first_token_s <= call.end_s
        assert 0 <= call.cached_tokens < call.prompt_tokens
        assert call.service_s + call.waiting_s <= call.end_s - call.arrival_s + 1e-5
    for program in programs:
        for number, ready_call in enumerate(program.calls):
            for needed in ready_call.call.needs(number):
                gap = program.calls[needed].call.gap_s
                earliest = calls[program.id, needed].end_s + gap
                assert calls[program.id, number].arrival_s >= earliest - 1e-5


@pytest.mark.parametrize("long_gap", [0, 1])
def test_call_that_needs_two_calls_follows_both_gaps(long_gap):
    """A step takes one second. The first call is answered after 2 seconds, the second after 5."""
    gaps = [0.0, 0.0]
    gaps[long_gap] = 10.0
    first = TraceCall(parts=(Part("a", 20),), output_tokens=2, gap_s=gaps[0])
    second = TraceCall(parts=(Part("b", 20),), output_tokens=5, gap_s=gaps[1], after=())
    join = TraceCall(parts=(Part("c", 20),), output_tokens=1, after=(0, 1))
    played = simulate([ready("p", first, second, join)], [0.0], Setup([ticking()]))
    ends = {call.number: call.end_s for call in played.calls}
    assert (ends[0], ends[1]) == (2.0, 5.0)
    (came,) = [call.arrival_s for call in played.calls if call.number == 2]
    assert came == max(ends[number] + gaps[number] for number in (0, 1))


def test_time_outside_the_engine_precedes_the_gap():
    """A step takes one second. The two replicas differ in the time outside the engine."""
    shapes = [ticking(call_s=0.5), ticking(call_s=0.25)]
    ask = TraceCall(parts=(Part("a", 20),), output_tokens=3, gap_s=2.0)
    setup = Setup(shapes, EngineSettings("fcfs"), "round_robin")
    played = simulate([ready("p", ask, ask)], [0.0], setup)
    outside = {"replica-0": 0.5, "replica-1": 0.25}
    first, second = played.calls
    assert first.replica != second.replica
    assert first.end_s == 3.0 + outside[first.replica]
    assert second.arrival_s == first.end_s + 2.0
    assert second.end_s == second.arrival_s + 3.0 + outside[second.replica]
    assert [call.service_s for call in played.calls] == [3.0, 3.0]


def test_records_depend_only_on_seed_and_policy():
    assert busy()[1].lines() == busy()[1].lines()
    assert busy()[1].lines() != busy("fcfs")[1].lines()


def test_all_replicas_are_used_and_programs_stay_at_their_homes():
    _, spread = busy(balancer="round_robin")
    assert {c.replica for c in spread.calls} == {"replica-0", "replica-1"}
    _, homes = busy(balancer="locality")
    assert sum(p.migrations for p in homes.programs) < sum(p.migrations for p in spread.programs)


def test_returned_answers_are_found_in_the_cache():
    def program(answer):
        first = TraceCall(parts=(Part("q", 64),), output_tokens=65, answer=answer)
        second = TraceCall(parts=(Part("q", 64), Part("a", 65), Part("r", 9)), output_tokens=1)
        return ready("p", first, second)

    setup = Setup([ticking()], EngineSettings("fcfs"))
    assert simulate([program("a")], [0.0], setup).calls[1].cached_tokens == 128
    assert simulate([program("")], [0.0], setup).calls[1].cached_tokens == 64


def test_swaps_take_time():
    programs = [single(f"p{i}", 300, 60) for i in range(6)]
    arrivals = [0.1 * i for i in range(6)]
    settings = EngineSettings("mlfq", {"first_quantum_s": 0.05}, swap_gib=1.0)
    ends = []
    for seconds in (0.0, 0.001):
        shape = engine(slots=2, kv_blocks=40, cost=CostModel(0.01, swapped_block_s=seconds))
        played = simulate(programs, arrivals, Setup([shape], settings))
        assert sum(c.blocks_swapped_out for c in played.calls) > 0
        assert played.violations == ()
        ends.append(played.end_s)
    assert ends[1] > ends[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_more_load_never_lowers_mean_latency(seed):
    draw = stream(seed, "lengths")
    programs = [single(f"p{i}", 50, 1 + int(draw.expovariate(1 / 40))) for i in range(80)]
    base = poisson_arrivals(stream(seed, "arrivals"), 1.0, len(programs))
    settings = EngineSettings("fcfs", prefix_cache=False)
    setup = Setup([engine(slots=4, kv_blocks=2000)], settings)
    means = []
    for rate in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        played = simulate(programs, [t / rate for t in base], setup)
        means.append(mean(p.response_s for p in played.programs))
    assert means == sorted(means)
    assert means[-1] > 2 * means[0]


@pytest.mark.slow
def test_mean_wait_of_one_server_follows_pollaczek_khinchine():
    """Poisson arrivals, service of any distribution, one server: the mean wait is
    rate * E[S^2] / (2 (1 - rate E[S])). A call of n tokens takes n steps of one second."""
    lengths, shares = (2, 30), (0.8, 0.2)
    first = sum(n * s for n, s in zip(lengths, shares, strict=True))
    second = sum(n * n * s for n, s in zip(lengths, shares, strict=True))
    rate = 0.4 / first
    expected = rate * second / (2 * (1 - rate * first))
    setup = Setup([ticking(slots=1)], EngineSettings("fcfs", prefix_cache=False))
    waits = []
    for seed in range(16):
        draw = stream(seed, "lengths")
        programs = [single(f"p{i}", 5, draw.choices(lengths, shares)[0]) for i in range(500)]
        played = simulate(programs, poisson_arrivals(stream(seed, "gaps"), rate, 500), setup)
        waits.append(mean(c.start_s - c.arrival_s for c in played.calls))
    # Student's t for 99% at 15 degrees of freedom.
    half = 2.947 * stdev(waits) / sqrt(len(waits))
    assert half < 0.25 * expected
    assert abs(mean(waits) - expected) < half


def test_impossible_simulation_is_refused():
    setup = Setup([engine(kv_blocks=20)])
    with pytest.raises(SimulationError, match="does not fit"):
        simulate([single("p", 1000, 10)], [0.0], setup)
    with pytest.raises(ValueError, match="names"):
        simulate([single("p", 10, 1), single("p", 10, 1)], [0.0, 1.0], setup)
    with pytest.raises(ValueError, match="zip"):
        simulate([single("p", 10, 1)], [], setup)
    with pytest.raises(ValueError, match="unknown policy"):
        simulate([single("p", 10, 1)], [0.0], Setup([engine()], EngineSettings("guess")))


def test_each_replica_keeps_some_of_the_shared_documents():
    def asked(rng, _):
        return document(rng.randrange(10))

    ours, begins = play(asked, 80, 6.0)
    assert hit_rate(ours) > 0.85
    places = defaultdict(set)
    for program in ours.programs:
        places[begins[program.id]].update(program.replicas)
    assert mean([len(names) for names in places.values()]) < 2


def test_common_system_prompt_keeps_the_load_balanced():
    found, _ = play(lambda *_: Part("system", 2000, "system"), 80, 6.0, said=600)
    counts = homes(found)
    assert len(counts) == REPLICAS
    assert max(counts.values()) <= 1.3 * 80 / REPLICAS
    assert hit_rate(found) > 0.8


def test_later_programs_do_not_all_go_to_the_first_ones_replica():
    found, _ = play(lambda *_: Part("system", 2000, "system"), 60, 0.5, said=600)
    counts = homes(found)
    assert len(counts) == REPLICAS
    assert max(counts.values()) <= 30


def test_popular_document_spreads_over_replicas_and_rare_ones_do_not():
    def asked(rng, _):
        return document(0 if rng.random() < 0.7 else rng.randrange(1, 8))

    ours, begins = play(asked, 100, 14.0, answered=100)
    hot = homes_of(ours, begins, document(0).name)
    rare = [homes_of(ours, begins, document(n).name) for n in range(1, 8)]
    assert len(hot) >= 2
    assert mean([len(names) for names in rare if names]) < len(hot)


def test_delays_are_random_and_part_of_the_response():
    """Parallel calls lose their order, and a chain waits for the delay of each call."""
    single_call = TraceCall(parts=(Part("p", 20, "user"),), output_tokens=1, gap_s=1.0)
    wide = ready("wide", *[structs.replace(single_call, after=())] * 8)
    chain = ready("chain", *[single_call] * 9)

    def play(program, delay_s, seed):
        setup = Setup([ticking(0.5, slots=1)], EngineSettings("fcfs"), seed=seed, delay_s=delay_s)
        return simulate([program], [0.0], setup)

    starts = [sorted(play(wide, 0.25, seed).calls, key=lambda c: c.start_s) for seed in range(4)]
    orders = {tuple(call.number for call in calls) for calls in starts}
    assert len(orders) == 4
    (at_once,) = play(chain, 0.0, 0).programs
    late = [play(chain, 0.25, seed).programs[0].response_s for seed in range(20)]
    assert all(at_once.response_s < one < at_once.response_s + 9 * 0.5 for one in late)
    assert mean(late) == pytest.approx(at_once.response_s + 9 * 0.25, rel=0.05)


def test_a_refused_program_makes_no_call_and_never_ends():
    programs = chats(1, 12)
    deadlines = {program.id: 1000.0 for program in programs} | {programs[-1].id: 0.001}
    arrivals = [100.0 * number for number in range(len(programs))]
    setup = Setup([engine()], EngineSettings("slack"), "soonest", deadlines=deadlines, refuse=True)
    played = simulate(programs, arrivals, setup)
    *served, refused = played.programs
    assert all(program.calls and program.end_s < 10_000 for program in served)
    assert (refused.calls, refused.response_s) == (0, float("inf"))
    assert programs[-1].id not in {call.program for call in played.calls}
    assert played.violations == ()
