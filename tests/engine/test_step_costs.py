"""The costs of steps, fitted by vLLM's real scheduler to steps with known durations."""

from __future__ import annotations

from random import Random

import pytest

pytestmark = pytest.mark.engine


def test_an_engine_reports_the_costs_of_its_steps_and_its_limits(engine):
    e = engine(policy="fcfs", max_num_seqs=8)
    e.step_s, e.token_s = 0.01, 0.0001
    assert e.scheduler.state()["costs"] is None
    rng = Random(1)
    for number in range(60):
        prompt = [rng.randrange(1, 1000) for _ in range(rng.randrange(1, 1500))]
        e.add(f"call{number}", prompt=prompt, tokens=rng.randrange(1, 40))
        for _ in range(rng.randrange(12)):
            e.step()
    e.run()
    state = e.scheduler.state()
    costs = state["costs"]
    assert costs["prefill_token_s"] == pytest.approx(0.0001, rel=0.02)
    assert costs["prefill_pair_s"] < 1e-9
    assert costs["step_s"] + costs["weights_s"] == pytest.approx(0.01, rel=0.05)
    assert 100 < costs["samples"] <= len([batch for batch in e.batches if batch])
    assert costs["relative_error"] < 0.05
    limits = [state[name] for name in ("slots", "step_tokens", "kv_blocks", "block_tokens")]
    assert limits == [8, 2048, 512, 16]
    # The simulator reads only this part.
    assert e.scheduler.speed().items() <= state.items()


def test_context_and_pairs_count_the_tokens_before_the_computed_ones(engine):
    e = engine(policy="fcfs", step_tokens=256)
    e.add("a", prompt=list(range(1, 301)), tokens=3)
    e.add("b", prompt=list(range(400, 450)), tokens=1)
    found, schedule = [], e.scheduler.schedule

    def kept():
        known = e.scheduler.prefilling()
        output = schedule()
        if output.num_scheduled_tokens:
            names = {*known, *e.scheduler.started(output)}
            prefill = e.scheduler.prefill_of(output, names)
            pairs = e.scheduler.attention_pairs_of(prefill)
            found.append((e.scheduler.earlier_tokens(output), pairs))
        return output

    e.scheduler.schedule = kept
    e.run()
    # The first chunk of `a`; the rest of `a` with `b`; two steps of `a` alone.
    first, rest, other = sum(range(1, 257)), sum(range(257, 301)), sum(range(1, 51))
    assert found == [(0, first), (256, rest + other), (300, 0), (301, 0)]
