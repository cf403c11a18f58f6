"""The mock engine's figures are deterministic and like an engine's."""

from __future__ import annotations

from loadgen.mock_engine.accounting import Accounting


def body(*texts, **more):
    return {"messages": [{"role": "user", "content": t} for t in texts], **more}


def test_a_shared_prefix_is_cached_and_a_reset_forgets_it():
    accounting = Accounting(max_words=50)
    assert accounting.count(body("a" * 400)).cached_tokens == 0
    again = accounting.count(body("a" * 400, "b" * 40))
    assert 0 < again.cached_tokens < again.prompt_tokens
    accounting.set_policy("plas", reset_cache=True)
    assert accounting.count(body("a" * 400)).cached_tokens == 0
    assert accounting.policy == "plas"


def test_an_answer_has_the_asked_length_or_the_engines_own():
    accounting = Accounting(max_words=50)
    assert accounting.count(body("x")).output_tokens == 50
    assert accounting.count(body("x", max_tokens=7)).output_tokens == 7
    assert accounting.count(body("x", max_tokens=70)).output_tokens == 50
    assert accounting.count(body("x", max_tokens=70, ignore_eos=True)).output_tokens == 70


def test_the_report_charges_what_was_computed():
    accounting = Accounting(max_words=50)
    first = accounting.report("c", accounting.count(body("a" * 4000)), {})
    second = accounting.report("d", accounting.count(body("a" * 4000)), {})
    assert first.call == "c"
    assert 0 < second.service_s < first.service_s
    named = accounting.report("", accounting.count(body("a")), {"vllm_xargs": {"weft_call": "x"}})
    assert named.call == "x"
