"""Prompts as parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_bench.virtual.programs import Seen, parts_of
from weft_bench.workloads.cutting import ReadyCall, fit
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram


def test_parts_of_messages_do_not_depend_on_later_messages():
    """A message ends at the same token whatever follows it, so that calls can share it."""
    texts = ["s" * 401, "u" * 37, "a" * 50, "t" * 71, "a" * 13, "t" * 58]
    roles = ("system", "user", "assistant", "tool", "assistant", "tool")
    messages = tuple({"role": r, "content": t} for r, t in zip(roles, texts, strict=True))
    longest: tuple[Part, ...] = ()
    for count in range(1, len(messages) + 1):
        trace = TraceProgram("p", (TraceCall(messages=messages[:count], output_tokens=1),))
        (call,) = fit(trace, 10_000, 3.7).calls
        parts = parts_of(call, Seen(), 3.7)
        assert sum(part.tokens for part in parts) == call.prompt_tokens
        assert parts[: len(longest)] == longest
        longest = parts
    assert [part.kind for part in longest] == list(roles)


def test_token_ids_with_a_common_prefix_share_parts():
    ids = tuple(range(300, 350))
    mine = of_ids(ids, Seen())
    other = of_ids((*ids[:32], *ids[:18]), Seen())
    assert sum(part.tokens for part in mine) == 50
    assert mine[:2] == other[:2]
    assert mine[2] != other[2]


@given(st.lists(st.lists(st.integers(0, 2), max_size=70), min_size=1, max_size=5))
def test_parts_of_token_ids_do_not_depend_on_earlier_prompts(prompts):
    seen = Seen()
    for number, prompt in enumerate(prompts, 1):
        ids = (*prompts[0], number, *prompt)
        assert of_ids(ids, seen) == of_ids(ids, Seen())


def of_ids(ids: tuple[int, ...], seen: Seen) -> tuple[Part, ...]:
    return parts_of(ReadyCall(TraceCall(prompt_ids=ids), len(ids), 5), seen, 4.0)
