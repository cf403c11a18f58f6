"""Coding sessions: common prefixes, kinds of parts, compactions and sub-agents."""

from __future__ import annotations

from typing import Any

from weft_bench.workloads.schema import Part, TraceProgram
from weft_bench.workloads.traces import coding

TOKENS = 64


def asked(blocks: list[int], t: float = 0.0, **more: Any) -> dict[str, Any]:
    found = {"in": 0, "out": 2 * TOKENS, "stop": "tool_use", "t": t, "api_time": 1.0}
    return {**found, "hash_ids": blocks, "think_time": 3.0, **more}


def session(name: str, *requests: dict[str, Any], tools: int = 8, system: int = 4) -> TraceProgram:
    record = {
        "id": name,
        "block_size": TOKENS,
        "tool_tokens": tools * TOKENS,
        "system_tokens": system * TOKENS,
        "requests": requests,
    }
    (found,) = coding.read([record])
    return found


def lengths(parts: tuple[Part, ...]) -> list[tuple[str, int]]:
    return [(part.kind, part.tokens // TOKENS) for part in parts]


def test_sessions_share_only_equal_tools():
    blocks = list(range(14))
    a, b, c = (session(name, asked(blocks), tools=t) for name, t in (("a", 8), ("b", 8), ("c", 9)))
    first, second, third = (one.calls[0].parts for one in (a, b, c))
    assert first[0] == second[0] == Part("tools/512", 512, "system")
    assert third[0] != first[0]
    assert first[1].name != second[1].name


def test_lengths_stay_undivided():
    (call,) = session("a", asked(list(range(14)), out=333)).calls
    assert sum(part.tokens for part in call.parts) == 14 * TOKENS
    assert call.output_tokens == 333


def test_a_prompt_has_the_history_the_answer_and_the_input():
    first, more = list(range(14)), [14, 15, 16, 17, 18]
    found = session(
        "a",
        asked(first),
        asked([*first, *more], stop="end_turn", out=TOKENS),
        asked([*first, *more, 30, 31]),
    ).calls
    fixed = [("system", 8), ("system", 4), ("user", 2)]
    assert lengths(found[0].parts) == fixed
    assert lengths(found[1].parts) == [*fixed, ("assistant", 2), ("tool", 3)]
    assert lengths(found[2].parts)[-2:] == [("assistant", 1), ("user", 1)]
    assert found[1].parts[:3] == found[0].parts
    assert found[2].parts[:5] == found[1].parts


def test_a_compaction_keeps_the_common_prefix_only():
    first = list(range(20))
    found = session("a", asked(first), asked([*first[:13], 50, 51, 52]), asked(first)).calls
    kept = found[1].parts
    assert kept[:2] == found[0].parts[:2]
    assert lengths(kept[2:3]) == [("user", 1)]
    # A part that was cut is the beginning of the whole one.
    assert kept[2].name == found[0].parts[2].name
    assert not {one.name for one in kept[3:]} & {one.name for one in found[0].parts}
    # The session returns to its first history.
    assert found[2].parts == found[0].parts


def agent(t: float, duration_s: float, *requests: dict[str, Any]) -> dict[str, Any]:
    about = {"type": "subagent", "t": t, "duration_ms": 1000 * duration_s}
    return {**about, "tool_tokens": 2 * TOKENS, "system_tokens": TOKENS, "requests": requests}


def test_a_session_waits_for_its_sub_agents_which_run_beside_each_other():
    one = agent(9.0, 7.0, asked([60, 61, 62, 63]), asked([60, 61, 62, 63, 64, 65], t=4.0))
    other = agent(12.0, 10.0, asked([60, 61, 62, 70]))
    first = list(range(14))
    found = session("a", asked(first), one, other, asked([*first, 20], t=20.0)).calls
    assert [call.needs(number) for number, call in enumerate(found)] == [
        (),
        (0,),
        (1,),
        (0,),
        (2, 3),
    ]
    # From the parent's answer at 1 s to the start of its sub-agents at 2 s, and from their ends to
    # the parent's next call.
    assert [call.gap_s for call in found] == [1.0, 3.0, 11.0, 8.0, 0.0]
    assert lengths(found[1].parts) == [("system", 2), ("system", 1), ("user", 1)]
    # Both have the same tools and system prompt, which differ from their parent's.
    assert found[3].parts[:2] == found[1].parts[:2]
    assert found[4].parts[: len(found[0].parts)] == found[0].parts


def test_a_sub_agent_that_starts_after_another_waits_for_it():
    one, other = agent(5.0, 3.0, asked([60, 61])), agent(9.0, 3.0, asked([70, 71]))
    found = session("a", asked([1, 2]), one, other, asked([1, 2, 3], t=10.0)).calls
    assert [call.needs(number) for number, call in enumerate(found)] == [(), (0,), (1,), (2,)]
    assert found[1].gap_s == 1.0
