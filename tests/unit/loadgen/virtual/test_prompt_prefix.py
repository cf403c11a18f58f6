"""Prefix marks of simulated prompts, which correspond to the gateway's marks of real ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_bench.virtual.front import STEP_TOKENS, prompt_prefix
from weft_bench.workloads.schema import Part


def marks(*parts: tuple[str, int]) -> tuple[int, ...]:
    found = prompt_prefix([Part(name, tokens) for name, tokens in parts])
    return () if found is None else found.marks


def test_prompts_share_the_marks_of_their_common_prefix():
    one = marks(("system", 100), ("document", 2000), ("question", 900))
    other = marks(("system", 100), ("document", 2000), ("another", 900))
    assert len(one) == len(other) == 3000 // STEP_TOKENS
    shared = 2100 // STEP_TOKENS
    assert one[:shared] == other[:shared]
    assert not set(one[shared:]) & set(other[shared:])


def test_equal_parts_after_different_prefixes_share_no_mark():
    assert not set(marks(("a", 100), ("same", 3000))) & set(marks(("b", 100), ("same", 3000)))
    assert not set(marks(("a", 10), ("same", 3000))) & set(marks(("a", 11), ("same", 3000)))


def test_prompt_shorter_than_a_step_has_no_mark():
    assert prompt_prefix([Part("a", STEP_TOKENS - 1)]) is None
    assert prompt_prefix([]) is None


@given(st.lists(st.integers(1, 1500), max_size=8))
def test_marks_are_deterministic_with_one_per_full_step(sizes):
    parts = [(f"part-{i}", tokens) for i, tokens in enumerate(sizes)]
    assert len(marks(*parts)) == sum(sizes) // STEP_TOKENS
    assert marks(*parts) == marks(*parts)
