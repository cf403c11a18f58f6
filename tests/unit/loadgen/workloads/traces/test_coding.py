"""Coding sessions: the common prefixes and the tags of generated prompts."""

from __future__ import annotations

from weft_bench.workloads.traces import coding

TOKENS = coding.DEFAULT_SHRINK


def session(name: str, *requests: dict, tools: int = 128, system: int = 64) -> dict:
    return {
        "id": name,
        "block_size": TOKENS,
        "tool_tokens": tools,
        "system_tokens": system,
        "requests": [{"in": 0, "out": 2 * TOKENS, "stop": "tool_use", **r} for r in requests],
    }


def prompts(*records: dict) -> list[list[tuple[int, ...]]]:
    return [[call.prompt_ids for call in p.calls] for p in coding.read(records)]


def test_sessions_share_only_equal_tools():
    blocks = list(range(14))
    (a,), (b,), (c,) = prompts(
        session("a", {"hash_ids": blocks}),
        session("b", {"hash_ids": blocks}),
        session("c", {"hash_ids": blocks}, tools=144),
    )
    # A block of 16 tokens is one token here, and the tools have 8 blocks.
    assert a[:8] == b[:8]
    assert all(x != y for x, y in zip(a[8:], b[8:], strict=True))
    assert c[:8] != a[:8]


def test_prompt_has_system_and_question_then_answers_and_tool_output():
    first = list(range(14))
    second = [*first, 14, 15, 16, 17, 18]
    third = [*second[:16], 30, 31]
    (program,) = coding.read(
        [
            session(
                "a",
                {"hash_ids": first},
                {"hash_ids": second, "stop": "end_turn", "out": TOKENS},
                {"hash_ids": third},
            )
        ]
    )
    fixed = [(12, "SYSTEM_PROMPT"), (14, "USER_QUERY")]
    assert [call.tags for call in program.calls] == [
        (*fixed,),
        # Two blocks are the answer, the rest is tool output.
        (*fixed, (16, "RESPONSE"), (19, "TOOL_OUTPUT")),
        # The end was cut off, then the user wrote.
        (*fixed, (17, "RESPONSE"), (18, "USER_QUERY")),
    ]
