"""Least tokens that engines compute: each block once."""

from __future__ import annotations

from random import Random

import pytest
from weft_bench.mapred.least import computed_once
from weft_bench.mapred.workload import EXPERTS, known_prompts


def test_whole_blocks_of_a_prefix_are_computed_once() -> None:
    page = list(range(40))
    assert computed_once([page]) == 40
    assert computed_once([page, [*page, 99]]) == 40 + 41 - 32
    # The block differs because its prefix does.
    assert computed_once([page, [99, *page[1:]]]) == 80


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    page = list(range(48))
    assert computed_once([[*page, 1], page]) == 49 + 16


def test_equal_prompts_count_once() -> None:
    assert computed_once([[1, 2], [1, 2]]) == 2


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_calls_makes_no_difference(seed: int) -> None:
    source = Random(seed)
    # No prompt is a whole number of blocks.
    prompts = [
        [source.randrange(2) for _ in range(4 * source.randrange(1, 9) + 1)] for _ in range(30)
    ]
    mixed = source.sample(prompts, len(prompts))
    assert computed_once(prompts, block=4) == computed_once(mixed, block=4)


def test_known_prompts_are_those_of_all_calls() -> None:
    rows = [{"context": "c", "question": f"q{n}"} for n in range(3)]
    found = list(known_prompts(rows))
    assert len(found) == 3 * (len(EXPERTS) + 1)
    assert found[0] == (next(iter(EXPERTS.values())), "c\n\nQuestion: q0")
