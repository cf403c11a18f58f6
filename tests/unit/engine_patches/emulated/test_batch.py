"""The work of a step, and the sequences that get a token."""

from __future__ import annotations

from types import SimpleNamespace

from weft_engine.emulated.batch import Batch


def new(name, prompt, computed=0, known=None):
    return SimpleNamespace(
        req_id=name,
        prompt_token_ids=list(range(prompt)),
        sampling_params=None,
        prefill_token_ids=known,
        num_computed_tokens=computed,
    )


def output(scheduled, started=(), cached=(), finished=()):
    """cached: (name, computed tokens, tokens of the answer)."""
    return SimpleNamespace(
        finished_req_ids=set(finished),
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        scheduled_new_reqs=list(started),
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[one[0] for one in cached],
            num_computed_tokens=[one[1] for one in cached],
            num_output_tokens=[one[2] for one in cached],
        ),
    )


def test_a_prompt_in_two_pieces_gets_its_token_after_the_second():
    batch = Batch()
    first = batch.take(output({"a": 60}, [new("a", 100)]))
    assert (first.prefill, first.context, first.sampled) == (60, 0, {})
    second = batch.take(output({"a": 40}, cached=[("a", 60, 0)]))
    assert (second.prefill, second.context, second.sampled) == (40, 60, {"a": 0})
    # Each token is compared with itself and those before it.
    assert (first.pairs, second.pairs) == (sum(range(1, 61)), sum(range(61, 101)))


def test_cached_tokens_are_context():
    step = Batch().take(output({"a": 4}, [new("a", 100, computed=96)]))
    assert (step.prefill, step.context, step.sampled) == (4, 96, {"a": 0})


def test_decode_and_prefill_in_one_step():
    batch = Batch()
    batch.take(output({"a": 100}, [new("a", 100)]))
    step = batch.take(output({"a": 1, "b": 50}, [new("b", 50)], [("a", 100, 1)]))
    assert (step.prefill, step.decode, step.context) == (50, 1, 100)
    assert step.pairs == 50 * 51 / 2
    assert step.sampled == {"a": 1, "b": 0}
    assert step.names == ["a", "b"]


def test_a_resumed_sequence_gets_a_token_when_prompt_and_answer_are_computed():
    batch = Batch()
    batch.take(output({"a": 100}, [new("a", 100)]))
    first = batch.take(output({"a": 100}, cached=[("a", 0, 7)]))
    assert (first.prefill, first.sampled) == (100, {})
    second = batch.take(output({"a": 7}, cached=[("a", 100, 7)]))
    assert second.sampled == {"a": 7}


def test_a_sequence_that_vllm_resumes_as_a_new_one():
    batch = Batch()
    batch.take(output({"a": 100}, [new("a", 100)]))
    step = batch.take(output({"a": 107}, [new("a", 100, known=[0] * 107)]))
    assert step.sampled == {"a": 7}


def test_the_device_is_busy_while_sequences_remain():
    batch = Batch()
    assert not batch.take(output({"a": 10}, [new("a", 10)])).busy
    assert batch.take(output({"a": 1}, cached=[("a", 10, 1)])).busy
    assert not batch.take(output({"b": 5}, [new("b", 5)], finished=["a"])).busy


def test_the_device_is_idle_while_sequences_wait_for_blocks():
    batch = Batch()
    batch.take(output({"a": 10}, [new("a", 10)]))
    assert not batch.take(output({})).names
    assert not batch.take(output({"a": 1}, cached=[("a", 10, 1)])).busy


def test_equal_prompts_have_equal_seeds():
    batch = Batch()
    batch.take(output({"a": 10, "b": 10, "c": 11}, [new("a", 10), new("b", 10), new("c", 11)]))
    seeds = [batch.sequences[name].seed for name in "abc"]
    assert seeds[0] == seeds[1] != seeds[2]
