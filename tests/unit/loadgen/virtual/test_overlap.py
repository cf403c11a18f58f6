"""What overlaps with what, and what holds for every simulation in which something does."""

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


def test_it_is_the_gateways_prefill():
    assert TAKE_WAIT_S == production._WAIT_S
    assert PREFILL_TAGS == production._WHOLE_PROMPT_PARTIAL


@given(st.integers(1, 500), st.integers(1, 21))
def test_calls_are_complete_one_after_the_other_and_the_last_with_the_answer(tokens, tools):
    found = complete_at(tokens, tools)
    assert found == sorted(found)
    assert (len(found), found[-1]) == (tools, tokens)
    assert 1 <= found[0] <= -(-tokens // tools)


def test_tools_count_from_their_own_starts_and_the_answer_is_waited_for():
    assert all_done_s(10.0, [8.0, 9.0], [1.0, 3.0]) == 12.0
    assert all_done_s(10.0, [2.0], [1.0]) == 10.0
    assert all_done_s(10.0, [], []) == 10.0


def test_what_is_known_ends_before_the_tools_outputs():
    head, asked, found = Part("s", 5, "system"), Part("a", 2, "user"), Part("f", 3, "tool")
    assert known_before_tools((head, found, asked, found, found)) == (head, found, asked)
    # When a person's words were known nobody can tell.
    assert known_before_tools((head, found, asked)) == ()
    assert known_before_tools(()) == ()


def two_turns(tools=(4.0, 4.0), output=8, changed=True):
    """A turn that calls tools, and one after it, with other instructions or not."""
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


def test_a_tool_starts_when_its_call_is_complete():
    """Steps of a second: tokens come at 1 to 8, the calls are complete at 4 and 8."""
    program = two_turns(tools=(6.0, 1.0))
    assert played(program, Overlap()).calls[1].arrival_s == pytest.approx(14.0)
    assert played(program, Overlap(dispatch=True)).calls[1].arrival_s == pytest.approx(10.0)
    # The answer is waited for even if the tools have long ended.
    quick = two_turns(tools=(1.0, 0.0))
    assert played(quick, Overlap(dispatch=True)).calls[1].arrival_s == pytest.approx(8.0)


def test_what_does_not_depend_on_tools_is_prefilled_while_they_run():
    plain, split = played(two_turns(), Overlap()), played(two_turns(), Overlap(split=True))
    assert plain.calls[1].cached_tokens == 0
    # Other instructions, the question and the answer: all but what fills no block.
    assert split.calls[1].cached_tokens == (64 + 64 + 8) // 16 * 16
    (ahead,) = split.prefills
    assert (ahead.arrival_s, ahead.prompt_tokens) == (8.0, 136)
    assert (ahead.computed_tokens, ahead.end_s) == (136, 9.0)
    assert split.calls[1].arrival_s == plain.calls[1].arrival_s


def test_a_turn_waits_a_little_for_its_prefill_which_is_stopped_then():
    # 16 tokens a step of a tenth of a second: 9 steps of which 3 and the one at hand are taken.
    program = two_turns(tools=(0.25,), output=8)
    setup = Setup([ticking(0.1, step_tokens=16)], EngineSettings("fcfs"), overlap=ALL)
    found = simulate([program], [0.0], setup)
    (ahead,), turn = found.prefills, found.calls[1]
    asked = ahead.arrival_s
    assert turn.arrival_s == pytest.approx(asked + 0.25, abs=1e-5)
    assert ahead.end_s == pytest.approx(asked + 0.5, abs=1e-5)
    assert ahead.computed_tokens == turn.cached_tokens == 5 * 16
    assert found.violations == ()


def test_without_tools_that_run_nothing_is_prefilled():
    assert played(two_turns(tools=(0.0, 0.0)), ALL).prefills == []


def scene(workload, overlap, *, naive=False, policy="program_fifo", seed=3, kv_blocks=3000):
    """Long prompts on engines that hold few of them."""
    shape = engine(slots=8, kv_blocks=kv_blocks, step_tokens=512)
    programs = load(workload, seed, 8, (kv_blocks - 100) * 16)
    arrivals = poisson_arrivals(stream(seed, "arrivals"), 0.3, len(programs))
    options = {"experiments": True, "first_quantum_s": 0.25}
    settings_ = EngineSettings(policy, options, naive=naive)
    setup = Setup([shape, replace(shape, slots=2)], settings_, overlap=overlap, seed=seed)
    return programs, simulate(programs, arrivals, setup)


@pytest.mark.parametrize("mode", MODES)
def test_leaps_decide_as_single_steps_do(mode):
    quick = scene("web_search", MODES[mode], policy="plas", kv_blocks=1500)[1]
    naive = scene("web_search", MODES[mode], policy="plas", kv_blocks=1500, naive=True)[1]
    assert quick.lines() == naive.lines()
    assert quick.violations == naive.violations == ()


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 50),
    mode=st.sampled_from(sorted(MODES)),
    policy=st.sampled_from(["program_fifo", "plas", "srpt"]),
)
def test_causes_come_before_effects_and_everything_ends_once(seed, mode, policy):
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
            # No tool starts before the first token that could complete its call.
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
def test_pins_keep_what_tools_come_back_to_until_they_expire(retain_s, cached):
    """Two programs pass through the cache while the tool of a third runs."""
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


def test_what_ended_programs_leave_goes_first():
    """A program's end is told, so that the next one takes its blocks and not those of one that
    waits for a tool, though these are older."""
    waiting = two_turns(tools=(30.0,), changed=False)
    others = [
        ready(name, TraceCall(parts=(Part(name, 256, "system"),), output_tokens=2))
        for name in ("q", "r")
    ]
    cached = []
    for forget in (False, True):
        setup = Setup(
            [ticking(kv_blocks=28)], EngineSettings("fcfs"), overlap=Overlap(forget=forget)
        )
        found = simulate([waiting, *others], [0.0, 15.0, 20.0], setup)
        assert found.violations == ()
        cached.append(
            next(c.cached_tokens for c in found.calls if (c.program, c.number) == ("p", 1))
        )
    assert cached[0] < cached[1] == 128
