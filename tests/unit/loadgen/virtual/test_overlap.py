"""Overlap of tools, answers and prefills, and invariants of simulations with overlap."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.simulated import engine, ready, ticking
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.overlap import (
    PREFILL_TAGS,
    TAKE_WAIT_S,
    Overlap,
    all_done_s,
    complete_at,
    known_before_tools,
)
from weft_bench.virtual.workload import load
from weft_bench.virtual.world import Setup, simulate
from weft_bench.workloads.schema import Part, TraceCall
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_gateway.calls import prefills as production

ALL = Overlap(split=True, dispatch=True, forget=True)
MODES = {
    "split": Overlap(split=True),
    "dispatch": Overlap(dispatch=True),
    "all": ALL,
    "untagged": Overlap(split=True, dispatch=True, tell_tags=False),
    "pinned": Overlap(retain_s=0.5),
}


def test_constants_equal_the_gateways():
    assert TAKE_WAIT_S == production._WAIT_S
    assert PREFILL_TAGS == production._WHOLE_PROMPT_PARTIAL


@given(st.integers(1, 500), st.integers(1, 21))
def test_tool_calls_complete_in_order_and_the_last_with_the_answer(tokens, tools):
    found = complete_at(tokens, tools)
    assert found == sorted(found)
    assert (len(found), found[-1]) == (tools, tokens)
    assert 1 <= found[0] <= -(-tokens // tools)


def test_turn_ends_after_its_answer_and_all_tools():
    assert all_done_s(10.0, [8.0, 9.0], [1.0, 3.0]) == 12.0
    assert all_done_s(10.0, [2.0], [1.0]) == 10.0
    assert all_done_s(10.0, [], []) == 10.0


def test_known_prefix_ends_before_the_tool_outputs():
    head, asked, found = Part("s", 5, "system"), Part("a", 2, "user"), Part("f", 3, "tool")
    assert known_before_tools((head, found, asked, found, found)) == (head, found, asked)
    # The time of a user's message is unknown.
    assert known_before_tools((head, found, asked)) == ()
    assert known_before_tools(()) == ()


def two_turns(tools=(4.0, 4.0), output=8, changed=True):
    """Return a program of two turns. The first calls tools. changed: the second has another system
    prompt.
    """
    system, asked = Part("system", 64, "system"), Part("asked", 64, "user")
    other = Part("other", 64, "system") if changed else system
    answer, found = Part("answer", output, "assistant"), Part("found", 32, "tool")
    first = TraceCall(
        parts=(system, asked),
        output_tokens=output,
        answer="answer",
        gap_s=max(tools),
        tool_s=tools,
    )
    return ready("p", first, TraceCall(parts=(other, asked, answer, found), output_tokens=1))


def played(program, overlap, **shape):
    setup = Setup([ticking(**shape)], EngineSettings("fcfs"), overlap=overlap)
    found = simulate([program], [0.0], setup)
    assert found.violations == ()
    return found


def test_tool_starts_when_its_call_is_complete():
    """A step takes one second: tokens come at 1 to 8, and the calls are complete at 4 and 8."""
    program = two_turns(tools=(6.0, 1.0))
    assert played(program, Overlap()).calls[1].arrival_s == pytest.approx(14.0)
    assert played(program, Overlap(dispatch=True)).calls[1].arrival_s == pytest.approx(10.0)
    # The turn waits for the answer even if the tools have ended long before.
    quick = two_turns(tools=(1.0, 0.0))
    assert played(quick, Overlap(dispatch=True)).calls[1].arrival_s == pytest.approx(8.0)


def test_independent_prompt_part_is_prefilled_while_tools_run():
    plain, split = played(two_turns(), Overlap()), played(two_turns(), Overlap(split=True))
    assert plain.calls[1].cached_tokens == 0
    # The other system prompt, the question and the answer, in full blocks.
    assert split.calls[1].cached_tokens == (64 + 64 + 8) // 16 * 16
    (ahead,) = split.prefills
    assert (ahead.arrival_s, ahead.prompt_tokens) == (8.0, 136)
    assert (ahead.computed_tokens, ahead.end_s) == (136, 9.0)
    assert split.calls[1].arrival_s == plain.calls[1].arrival_s


def test_turn_waits_briefly_for_its_prefill_and_then_stops_it():
    # 16 tokens per step of 0.1 s, so 9 steps. 3 steps and the current one run before the stop.
    program = two_turns(tools=(0.25,), output=8)
    setup = Setup([ticking(0.1, step_tokens=16)], EngineSettings("fcfs"), overlap=ALL)
    found = simulate([program], [0.0], setup)
    (ahead,), turn = found.prefills, found.calls[1]
    asked = ahead.arrival_s
    assert turn.arrival_s == pytest.approx(asked + 0.25, abs=1e-5)
    assert ahead.end_s == pytest.approx(asked + 0.5, abs=1e-5)
    assert ahead.computed_tokens == turn.cached_tokens == 5 * 16
    assert found.violations == ()


def test_turn_without_running_tools_has_no_prefill():
    assert played(two_turns(tools=(0.0, 0.0)), ALL).prefills == []


def scene(workload, overlap, *, naive=False, policy="program_fifo", seed=3, kv_blocks=3000):
    """Play long prompts on engines that hold few of them."""
    shape = engine(slots=8, kv_blocks=kv_blocks, step_tokens=512)
    programs = load(workload, seed, 8, (kv_blocks - 100) * 16)
    arrivals = poisson_arrivals(stream(seed, "arrivals"), 0.3, len(programs))
    options = {"first_quantum_s": 0.25}
    settings_ = EngineSettings(policy, options, naive=naive)
    setup = Setup([shape, replace(shape, slots=2)], settings_, overlap=overlap, seed=seed)
    return programs, simulate(programs, arrivals, setup)


@pytest.mark.parametrize("mode", MODES)
def test_merged_steps_decide_like_single_steps(mode):
    quick = scene("web_search", MODES[mode], policy="plas", kv_blocks=1500)[1]
    naive = scene("web_search", MODES[mode], policy="plas", kv_blocks=1500, naive=True)[1]
    assert quick.lines() == naive.lines()
    assert quick.violations == naive.violations == ()


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 50),
    mode=st.sampled_from(sorted(MODES)),
    policy=st.sampled_from(["program_fifo", "plas"]),
)
def test_causes_precede_effects_and_every_call_ends_once(seed, mode, policy):
    programs, found = scene("production", MODES[mode], policy=policy, seed=seed)
    assert found.violations == ()
    calls = {(call.program, call.number): call for call in found.calls}
    assert len(calls) == len(found.calls) == sum(len(p.calls) for p in programs)
    dispatched, split = MODES[mode].dispatch, MODES[mode].split
    for program in programs:
        for number, one in enumerate(program.calls):
            call = calls[program.id, number]
            assert call.arrival_s <= call.start_s < call.first_token_s <= call.end_s
            assert call.output_tokens == one.max_tokens
            if not number:
                continue
            before, asked = calls[program.id, number - 1], program.calls[number - 1].call
            soonest = before.end_s + (0.0 if dispatched else asked.gap_s)
            assert soonest - 1e-5 <= call.arrival_s <= before.end_s + asked.gap_s + 1e-5
            # No tool starts before the first token that can complete its call.
            if dispatched:
                assert call.arrival_s >= before.first_token_s + asked.gap_s - 1e-5
    turns = [(ahead.program, ahead.number) for ahead in found.prefills]
    assert len(set(turns)) == len(turns)
    assert split or not turns
    for ahead in found.prefills:
        turn = calls[ahead.program, ahead.number]
        assert calls[ahead.program, ahead.number - 1].end_s <= ahead.arrival_s < turn.arrival_s
        assert ahead.arrival_s < ahead.end_s <= turn.start_s
        assert 0 <= ahead.computed_tokens <= ahead.prompt_tokens - ahead.cached_tokens
        assert ahead.prompt_tokens < turn.prompt_tokens


@pytest.mark.parametrize(("retain_s", "cached"), [(0.0, 0), (5.0, 0), (60.0, 128)])
def test_pins_keep_the_context_during_tools_until_they_expire(retain_s, cached):
    """Two programs use the cache while the tool of a third one runs."""
    waiting = two_turns(tools=(20.0,), changed=False)
    others = [
        ready(name, TraceCall(parts=(Part(name, 256, "user"),), output_tokens=2))
        for name in ("q", "r")
    ]
    setup = Setup(
        [ticking(kv_blocks=28)],
        EngineSettings("fcfs", plugin={"pin_share": 1.0}),
        overlap=Overlap(tell_tags=False, retain_s=retain_s),
    )
    found = simulate([waiting, *others], [0.0, 15.0, 20.0], setup)
    assert found.violations == ()
    turn = next(call for call in found.calls if (call.program, call.number) == ("p", 1))
    assert turn.cached_tokens == cached


def test_blocks_of_ended_programs_are_evicted_first():
    """With reported program ends, a new program takes the blocks of an ended one, and not the older
    blocks of a program that waits for a tool.
    """
    waiting = two_turns(tools=(30.0,), changed=False)
    others = [
        ready(name, TraceCall(parts=(Part(name, 256, "system"),), output_tokens=2))
        for name in ("q", "r")
    ]
    cached = []
    for forget in (False, True):
        setup = Setup(
            [ticking(kv_blocks=28)],
            EngineSettings("fcfs"),
            # The gateway notifies homes only.
            threshold_tokens=100,
            overlap=Overlap(forget=forget),
        )
        found = simulate([waiting, *others], [0.0, 15.0, 20.0], setup)
        assert found.violations == ()
        cached.append(
            next(c.cached_tokens for c in found.calls if (c.program, c.number) == ("p", 1))
        )
    assert cached[0] < cached[1] == 128


@pytest.mark.parametrize(("arrival", "cached"), [(16.0, 0), (20.0, 128)])
def test_call_that_is_admitted_at_a_programs_end_precedes_its_notice(arrival, cached):
    """The engine begins the next step before the client can end its session."""
    waiting = two_turns(tools=(30.0,), changed=False)
    others = [
        ready(name, TraceCall(parts=(Part(name, 256, "system"),), output_tokens=2))
        for name in ("q", "r")
    ]
    setup = Setup([ticking(kv_blocks=28, slots=1)], EngineSettings("fcfs"), threshold_tokens=100)
    found = simulate([waiting, *others], [0.0, 15.0, arrival], setup)
    turn = next(c for c in found.calls if (c.program, c.number) == ("p", 1))
    assert turn.cached_tokens == cached
