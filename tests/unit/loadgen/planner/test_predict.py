"""Prediction of a batch's time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.planning import STEPS, call, chain, replica, static, varies
from weft_bench.planner.predict import Prediction, predict
from weft_bench.planner.problem import Rows, operations
from weft_bench.planner.radix import build_tree
from weft_run.plan.calls import PlannedCall


def _played(
    calls: tuple[PlannedCall, ...], rows: int = 4, kv_tokens: int = 50_000, window: int = 32
) -> Prediction:
    found = operations(calls, build_tree(calls))
    return predict(
        found,
        Rows(rows, {}),
        [replica("a", kv_tokens=kv_tokens)],
        lambda number, row: (0, row * len(found) + number),
        [window],
    )


def test_call_alone_takes_its_prefill_and_its_steps() -> None:
    certain = replace(call("a", static("s", 320), answer=10.0), answer_high=10.0)
    found = _played((certain,), rows=1)
    hidden = STEPS.weights_s - STEPS.decode_s
    step_s = STEPS.step_s + STEPS.weights_s + 330 * STEPS.context_token_s
    expected = 320 * STEPS.prefill_token_s - hidden + 10 * step_s
    assert found.seconds == pytest.approx(expected)
    assert (found.prompt, found.cached) == (320, 0)


def test_dependent_calls_wait() -> None:
    free, bound = chain()[:2], (chain()[0], call("b", varies("first"), needs=("first",)))
    assert _played(bound, rows=1).seconds > 1.5 * _played(free, rows=1).seconds


def test_static_prefix_is_computed_once() -> None:
    found = _played((call("a", static("s", 320), varies("q", 32)),), rows=10)
    assert found.cached == 9 * 320
    assert found.hit_rate == pytest.approx(0.9 * 320 / 352)


def test_small_cache_evicts_what_was_used_least_recently() -> None:
    calls = tuple(call(str(n), static(f"s{n}", 400), answer=5.0) for n in range(4))
    assert _played(calls, rows=6).cached == 5 * 1600
    assert _played(calls, rows=6, kv_tokens=1000, window=1).cached == 0


def test_window_limits_the_calls_at_once() -> None:
    calls = (call("a", varies("q")),)
    assert _played(calls, 16, window=1).seconds > 8 * _played(calls, 16).seconds


def test_reply_finds_the_answer_in_the_cache() -> None:
    first, answer = call("a", varies("q", 160)), varies("a", 48)
    reply = call("b", varies("q", 160), answer, static("more", 16), needs=("a",))
    assert _played((first, reply), rows=1).cached == 208


def test_answers_that_vary_end_one_after_the_other() -> None:
    spread = call("a", varies("q"), answer=100.0)
    same = replace(spread, answer_high=100.0)
    # The last of 16 answers is longer than the mean.
    assert _played((spread,), 16).seconds > 1.3 * _played((same,), 16).seconds
    # The first one has about the expected length.
    alone = _played((spread,), 1).seconds
    assert alone == pytest.approx(_played((same,), 1).seconds, rel=0.1)
