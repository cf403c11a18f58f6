"""Prompts as parts."""

from __future__ import annotations

from loadgen.fit import ReadyCall, fit
from loadgen.schema import Part, TraceCall, TraceProgram
from loadgen.sim.content import parts_of


def test_messages_become_parts_of_the_same_length_and_of_the_same_content():
    """Whatever comes after a message, it ends at the same token, else nobody could share it."""
    texts = ["s" * 401, "u" * 37, "a" * 50, "t" * 71, "a" * 13, "t" * 58]
    roles = ("system", "user", "assistant", "tool", "assistant", "tool")
    messages = tuple({"role": r, "content": t} for r, t in zip(roles, texts, strict=True))
    longest: tuple[Part, ...] = ()
    for count in range(1, len(messages) + 1):
        trace = TraceProgram("p", (TraceCall(messages=messages[:count], output_tokens=1),))
        (call,) = fit(trace, 10_000, 3.7).calls
        parts = parts_of(call, {}, 3.7)
        assert sum(part.tokens for part in parts) == call.prompt_tokens
        assert parts[: len(longest)] == longest
        longest = parts
    assert [part.kind for part in longest] == list(roles)


def test_token_ids_become_parts_by_what_they_begin_with():
    ids = tuple(range(300, 350))
    mine = parts_of(ReadyCall(TraceCall(prompt_ids=ids), 50, 5), {}, 4.0)
    other = parts_of(ReadyCall(TraceCall(prompt_ids=(*ids[:32], *ids[:18])), 50, 5), {}, 4.0)
    assert sum(part.tokens for part in mine) == 50
    assert mine[:2] == other[:2]
    assert mine[2] != other[2]
