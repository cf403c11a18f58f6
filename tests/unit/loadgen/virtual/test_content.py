"""Prompts as parts."""

from __future__ import annotations

from weft_bench.virtual.programs import parts_of
from weft_bench.workloads.cutting import fit
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
        parts = parts_of(call, {}, 3.7)
        assert sum(part.tokens for part in parts) == call.prompt_tokens
        assert parts[: len(longest)] == longest
        longest = parts
    assert [part.kind for part in longest] == list(roles)
