"""The built-in workload."""

from __future__ import annotations

import pytest
from weft_bench.stats import mean
from weft_bench.workloads.synthetic import generate


def test_the_same_seed_gives_the_same_programs():
    assert generate(3, 5) == generate(3, 5)
    assert generate(3, 5) != generate(4, 5)
    assert generate(3, 5) == generate(3, 9)[:5], "more programs change none"


def test_lengths_have_the_published_mean_and_bound():
    lengths = [len(p.calls) for p in generate(0, 1500)]
    assert mean(lengths) == pytest.approx(10.75, rel=0.12)
    assert 40 < max(lengths) <= 70


def test_contexts_grow_and_programs_share_their_system_prompt():
    one, two = generate(0, 2)
    assert one.calls[0].messages[0] == two.calls[0].messages[0]
    for program in (one, two):
        for before, after in zip(program.calls, program.calls[1:], strict=False):
            assert after.messages[: len(before.messages)] == before.messages
            assert len(after.messages) == len(before.messages) + 2
