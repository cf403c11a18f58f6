"""Compares the generator with Sutradhara's published statistics of its production trace."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise, takewhile

import pytest
from weft_bench.overlap.shape import BEGINNINGS, QUERY, ShapeRequest, generate
from weft_bench.stats import percentile

MANY = generate(7, 4000)
TURNS = [turn for request in MANY for turn in request.turns]
CALLING = [turn for request in MANY for turn in request.turns[:-1]]


def test_iterations_are_two_at_the_median_and_seven_at_most():
    depths = [len(request.turns) for request in MANY]
    assert (min(depths), percentile(depths, 0.5), max(depths)) == (2, 2, 7)


def test_an_iteration_calls_two_tools_at_the_median_and_21_at_most():
    calls = [len(turn.calls) for turn in CALLING]
    assert (min(calls), percentile(calls, 0.5), max(calls)) == (1, 2, 21)
    assert all(not request.turns[-1].calls for request in MANY)


def test_prompts_have_a_tail_of_three_medians():
    sizes = [turn.size for turn in TURNS]
    assert percentile(sizes, 0.5) == pytest.approx(1, abs=0.05)
    assert percentile(sizes, 0.99) > 2.7
    assert max(sizes) <= 3


def test_half_to_four_fifths_of_the_next_prompt_is_independent_of_tools():
    shares = [1 - turn.outputs / turn.size for request in MANY for turn in request.turns[1:]]
    assert min(shares) >= 0.5
    assert max(shares) <= 0.8
    assert percentile(shares, 0.5) == pytest.approx(0.65, abs=0.01)
    assert all(request.turns[0].outputs == 0 for request in MANY)


@pytest.mark.parametrize(("at", "published"), [(0.5, 0.32), (0.9, 0.61), (0.99, 0.85)])
def test_tools_take_the_published_part_of_ftr(at, published):
    shares = [request.tool_share for request in MANY]
    assert percentile(shares, at) == pytest.approx(published, abs=0.04)


def test_tool_times_vary_as_published():
    weights = [call.weight for turn in CALLING for call in turn.calls]
    middle = percentile(weights, 0.5)
    assert 1.23 <= percentile(weights, 0.75) / middle <= 1.52
    assert 1.60 <= percentile(weights, 0.9) / middle <= 3.28


def test_the_final_answer_is_five_times_as_long():
    finals = [request.final for request in MANY]
    assert percentile(finals, 0.5) == pytest.approx(5, abs=0.2)
    assert (min(finals), max(finals)) == (2.5, 10)


@pytest.mark.parametrize("model_s", [0.5, 40.0])
def test_seconds_of_tools_give_the_share_when_nothing_overlaps(model_s):
    for request in MANY[:100]:
        seconds = request.tool_seconds(model_s)
        assert [len(each) for each in seconds] == [len(turn.calls) for turn in request.turns[:-1]]
        # The tools of one turn run in parallel.
        tools_s = sum(max(each) for each in seconds)
        assert tools_s / (tools_s + model_s) == pytest.approx(request.tool_share)


def changes(requests: list[ShapeRequest]) -> list[bool]:
    return [a.system != b.system for r in requests for a, b in pairwise(r.turns)]


def test_system_prompt_changes_with_the_tools_at_the_given_rate():
    for request in generate(1, 300, 1.0):
        for before, turn in pairwise(request.turns):
            called = sorted({call.tool for call in before.calls})
            assert turn.system == f"after {' '.join(map(str, called))}"
    assert not any(changes(generate(1, 300, 0.0)))
    half = changes(generate(1, 1000, 0.5))
    assert sum(half) / len(half) == pytest.approx(0.5, abs=0.06)


def test_requests_share_system_prompts():
    prompts = {request.turns[0].system for request in MANY}
    assert len(prompts) == BEGINNINGS
    later = [turn.system for request in MANY for turn in request.turns[1:]]
    assert len(set(later)) < len(later) / 2


def hit_rate(requests: list[ShapeRequest], prompts: int, a_prompt: int = 200) -> float:
    """Return the share of prompts that an LRU cache of `prompts` median prompts finds.

    Each median prompt has `a_prompt` blocks, and requests come in sequence.
    """
    cache: OrderedDict[tuple[object, ...], None] = OrderedDict()
    found = asked = 0
    for request in requests:
        query = round(request.turns[0].size * QUERY * a_prompt)
        for index, turn in enumerate(request.turns):
            shared = round((turn.size * (1 - QUERY) - turn.outputs) * a_prompt)
            blocks: list[tuple[object, ...]] = [(turn.system, n) for n in range(shared)]
            blocks += [(turn.system, shared, request.number, n) for n in range(query)]
            rest = round(turn.size * a_prompt) - len(blocks)
            blocks += [(request.number, index, n) for n in range(rest)]
            found += sum(1 for _ in takewhile(cache.__contains__, blocks))
            asked += len(blocks)
            for block in reversed(blocks):
                cache[block] = None
                cache.move_to_end(block)
            while len(cache) > prompts * a_prompt:
                cache.popitem(last=False)
    return found / asked


def test_cache_hit_rate_equals_the_papers_baseline():
    rates = [hit_rate(generate(seed, 120), 12) for seed in range(5)]
    assert sum(rates) / len(rates) == pytest.approx(0.218, abs=0.03)


def test_same_seed_gives_the_same_requests_for_any_count():
    assert generate(3, 5) == generate(3, 9)[:5]
    assert generate(3, 5) != generate(4, 5)


def test_rate_of_prompt_changes_affects_nothing_else():
    some, none = generate(3, 50, 1.0), generate(3, 50, 0.0)
    for one, other in zip(some, none, strict=True):
        assert [t.calls for t in one.turns] == [t.calls for t in other.turns]
        assert [t.size for t in one.turns] == [t.size for t in other.turns]
        assert one.tool_share == other.tool_share
