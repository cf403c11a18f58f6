"""Algorithm 1 on vLLM's real scheduler: order, demotion, promotion, preemption, accounting."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 4.0, "growth": 2.0, "queues": 4}


def first_seen(engine: Any, name: str) -> int:
    return next(i for i, batch in enumerate(engine.batches) if name in batch)


def test_fcfs_serves_in_order_of_arrival(engine):
    e = engine(policy="fcfs", max_num_seqs=1)
    e.add("old", service=1000.0, tokens=3)
    e.add("new", service=0.0, tokens=1)
    e.run()
    assert first_seen(e, "old") < first_seen(e, "new")
    assert len(e.tokens["old"]) == 3


def test_plas_serves_the_program_with_less_attained_service_first(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("heavy", service=1000.0, tokens=3)
    e.add("light", service=0.0, tokens=1)
    e.run()
    assert first_seen(e, "light") < first_seen(e, "heavy")


def test_calls_of_one_queue_are_served_first_come_first_served(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("a", service=1.0, tokens=1)
    e.add("b", service=0.0, tokens=1)
    e.run()
    assert first_seen(e, "a") < first_seen(e, "b")


def test_a_waiting_call_of_a_better_queue_preempts_a_running_one(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("heavy", service=1000.0, tokens=10)
    e.step()
    e.step()
    e.add("light", service=0.0, tokens=2)
    e.run()
    reports = {r.call: r for r in e.reports}
    assert reports["heavy"].preemptions == 1
    assert [r.call for r in e.reports] == ["light", "heavy"]
    assert len(e.tokens["heavy"]) == 10, "nothing is lost or repeated"


def test_fcfs_never_preempts(engine):
    e = engine(policy="fcfs", max_num_seqs=1)
    e.add("heavy", service=1000.0, tokens=10)
    e.step()
    e.add("light", service=0.0, tokens=2)
    e.run()
    assert [r.preemptions for r in e.reports] == [0, 0]
    assert [r.call for r in e.reports] == ["heavy", "light"]


def test_two_calls_of_one_queue_never_trade_places(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("a", service=1000.0, tokens=20)
    e.step()
    e.add("b", service=1000.0, tokens=20)
    e.run()
    assert [r.preemptions for r in e.reports] == [0, 0]


def test_a_call_that_spends_its_quantum_is_demoted(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("long", tokens=15)
    e.run()
    # Quanta of 4, 8 and 16 seconds at one second per step: 15 seconds exceed two of them.
    assert e.reports[0].queue_path == (0, 1, 2)


def test_a_demoted_call_is_preempted_by_a_new_one(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    e.add("long", tokens=30)
    for _ in range(8):
        e.step()
    e.add("short", tokens=2)
    e.run()
    assert [r.call for r in e.reports] == ["short", "long"]


def test_a_starving_program_is_promoted_to_the_first_queue(engine):
    e = engine(policy="plas", options={**OPTIONS, "beta": 2.0}, max_num_seqs=1)
    e.add("running", tokens=40, service=0.0)
    e.step()
    e.add("starving", service=5.0, waiting=9.0, tokens=2)
    e.run()
    report = next(r for r in e.reports if r.call == "starving")
    assert report.queue_path[0] == 1
    assert 0 in report.queue_path, "W/T passed beta while it waited"


def test_a_call_is_preempted_at_most_max_times(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1, max_displacements=2)
    e.add("victim", service=1000.0, tokens=30)
    for i in range(5):
        for _ in range(4):
            e.step()
        e.add(f"light{i}", tokens=1)
    e.run()
    assert next(r for r in e.reports if r.call == "victim").preemptions == 2


def test_service_is_the_steps_it_was_in_and_waiting_the_queue(engine):
    e = engine(policy="fcfs", max_num_seqs=1)
    e.add("a", tokens=3)
    e.add("b", tokens=2)
    e.run()
    reports = {r.call: r for r in e.reports}
    assert reports["a"].service_s == pytest.approx(3.0)
    assert reports["b"].service_s == pytest.approx(2.0)
    assert reports["a"].waiting_s == pytest.approx(0.0)
    # With two steps in flight, b is admitted as soon as a has no more step to schedule.
    assert 2.0 <= reports["b"].waiting_s <= 3.0


def test_the_report_counts_tokens_and_cache_hits(engine):
    e = engine(policy="plas", max_num_seqs=2)
    prompt = list(range(40))
    e.add("first", prompt=prompt, tokens=2)
    e.run()
    e.add("second", prompt=prompt, tokens=5)
    e.run()
    first, second = e.reports
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (40, 0, 2)
    assert (second.prompt_tokens, second.cached_tokens, second.output_tokens) == (40, 32, 5)


def test_sequences_of_one_call_make_one_report(engine):
    e = engine(policy="plas", max_num_seqs=4)
    for i in range(3):
        e.add(f"s{i}", call="many", tokens=2 + i)
    e.run()
    assert len(e.reports) == 1
    assert e.reports[0].output_tokens == 2 + 3 + 4
    assert e.reports[0].service_s == pytest.approx(4.0), "steps shared by sequences count once"


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_an_aborted_call_is_reported_and_forgotten(engine, when):
    e = engine(policy="plas", max_num_seqs=1)
    e.add("a", tokens=5)
    e.add("b", tokens=5)
    e.step()
    e.abort("a" if when == "running" else "b")
    e.run()
    assert {r.call for r in e.reports} == {"a", "b"}
    assert e.scheduler.violations() == []


def test_memory_pressure_preempts_the_worst_queue_and_loses_nothing(engine):
    options = {**OPTIONS, "first_quantum_s": 1000.0}
    e = engine(policy="plas", options=options, max_num_seqs=2, blocks=9)
    e.add("heavy", service=1e6, prompt=list(range(30)), tokens=60)
    e.add("light", service=0.0, prompt=list(range(100, 130)), tokens=60)
    e.run()
    reports = {r.call: r for r in e.reports}
    assert reports["light"].preemptions == 0
    assert reports["heavy"].preemptions >= 1
    assert len(e.tokens["heavy"]) == len(e.tokens["light"]) == 60


def test_the_policy_can_be_switched_between_two_steps(engine):
    from weft_engine.engine_link import Command

    e = engine(policy="fcfs", options=OPTIONS, max_num_seqs=1)
    e.add("heavy", service=1000.0, tokens=5)
    e.step()
    e.add("light", tokens=1)
    e.scheduler.obey(Command(policy="plas"))
    e.run()
    assert [r.call for r in e.reports] == ["light", "heavy"]
    assert len(e.tokens["heavy"]) == 5


def test_the_state_has_the_capacity_of_the_prefix_cache(engine):
    e = engine(blocks=40)
    assert e.scheduler.state()["cache_tokens"] == 40 * e.scheduler.block_size
    e.scheduler.kv_cache_manager.enable_caching = False
    assert e.scheduler.state()["cache_tokens"] == 0


def test_the_prefix_cache_can_be_emptied_while_calls_run(engine):
    from weft_engine.engine_link import Command

    e = engine(policy="plas", max_num_seqs=2)
    prompt = list(range(40))
    e.add("first", prompt=prompt, tokens=6)
    e.step()
    e.step()
    e.scheduler.obey(Command(reset_cache=True))
    e.run()
    assert len(e.tokens["first"]) == 6
    e.scheduler.obey(Command(reset_cache=True))
    e.add("again", prompt=prompt, tokens=1)
    e.run()
    assert e.reports[-1].cached_tokens == 0


def test_a_call_without_context_is_served(engine):
    from vllm import SamplingParams
    from vllm.v1.request import Request

    e = engine(policy="plas", max_num_seqs=1)
    e.scheduler.add_request(
        Request(
            request_id="stranger",
            prompt_token_ids=[1, 2],
            sampling_params=SamplingParams(max_tokens=2, ignore_eos=True),
            pooling_params=None,
            arrival_time=0.0,
        )
    )
    e.run()
    assert len(e.tokens["stranger"]) == 2
