"""The engines' counters, as sums and differences."""

from __future__ import annotations

import pytest
from weft_bench.drive.gateway import EngineCounters, emulated


def state(*engines):
    replicas = {f"r{n}": {"status": 200, "answer": {"engines": [e]}} for n, e in enumerate(engines)}
    return {"replicas": replicas, "table": {}}


SWAPS = {
    "displacements": 3, "recomputed_tokens": 40,
    "swap": {"swapped_out": 9, "swapped_in": 4, "slots": 100},
}  # fmt: skip


def test_replicas_are_summed_and_missing_swap_counts_as_zero():
    plain = {"displacements": 1, "recomputed_tokens": 2, "swap": None}
    assert EngineCounters.of_state(state(SWAPS, plain)) == EngineCounters(4, 42, 9, 4)


def test_earlier_counts_are_subtracted():
    later = {**SWAPS, "recomputed_tokens": 50, "swap": {"swapped_out": 12, "swapped_in": 4}}
    before, after = (EngineCounters.of_state(state(s)) for s in (SWAPS, later))
    assert after.since(before) == EngineCounters(0, 10, 3, 0)


@pytest.mark.parametrize("answer", ["Not Found", {"detail": "Not Found"}, None])
def test_engines_without_counters_count_as_zero(answer):
    silent = {"replicas": {"r0": {"status": 404, "answer": answer}, "r1": {"status": None}}}
    assert EngineCounters.of_state(silent) == EngineCounters()


@pytest.mark.parametrize("other", [{}, [], {"replicas": 3}, {"error": "forbidden"}])
def test_invalid_answer_is_an_error(other):
    with pytest.raises(ValueError, match="not a gateway's state"):
        EngineCounters.of_state(other)


def test_emulated_and_real_engines_are_distinguished_and_never_mixed():
    real = {"answer": {"engines": [{"policy": "plas"}]}}
    without_model = {"answer": {"engines": [{"policy": "plas", "emulated": "8b-a100"}]}}
    assert emulated({"replicas": {"a": without_model, "b": without_model}})
    assert not emulated({"replicas": {"a": real}})
    assert not emulated({"replicas": {"a": {"answer": "nothing"}}})
    with pytest.raises(ValueError, match="cannot mix"):
        emulated({"replicas": {"a": real, "b": without_model}})
