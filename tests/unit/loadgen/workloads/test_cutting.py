"""Cutting programs to a context."""

from __future__ import annotations

import pytest
from weft_bench.workloads.cutting import fit, message_bytes
from weft_bench.workloads.schema import Part, TraceCall, TraceError, TraceProgram


def message(size, role="user"):
    return {"role": role, "content": "x" * size}


def program(*calls):
    return TraceProgram("p", calls)


def test_program_ends_before_it_exceeds_the_context():
    calls = [TraceCall(messages=(message(400 * (i + 1)),), output_bytes=40) for i in range(10)]
    ready = fit(program(*calls), 1000, 4.0)
    assert ready.cut
    assert 0 < len(ready.calls) < 10
    for call in ready.calls:
        assert call.prompt_tokens + call.max_tokens <= 930
    whole = fit(program(*calls), 100_000, 4.0)
    assert len(whole.calls) == 10
    assert not whole.cut


def test_too_long_first_message_is_shortened_in_all_calls():
    big = message(9000, "system")
    calls = [
        TraceCall(messages=(big, message(20)), output_bytes=8),
        TraceCall(messages=(big, message(20), message(20)), output_bytes=8),
    ]
    ready = fit(program(*calls), 1000, 4.0)
    assert ready.trimmed
    heads = {call.call.messages[0]["content"] for call in ready.calls}
    assert len(ready.calls) == 2
    assert len(heads) == 1
    assert len(heads.pop()) < 9000


def test_program_that_does_not_fit_is_none():
    assert fit(program(TraceCall(parts=(Part("a", 2000),), output_tokens=4)), 1000, 4.0) is None


def test_answers_are_scaled():
    ready = fit(program(TraceCall(parts=(Part("a", 100),), output_tokens=10)), 1000, 4.0, 2.5)
    assert (ready.calls[0].prompt_tokens, ready.calls[0].max_tokens) == (100, 25)


def test_a_session_goes_on_with_its_next_prompt_that_fits():
    def call(tokens: int, after: tuple[int, ...] | None = None) -> TraceCall:
        return TraceCall(parts=(Part("a", tokens),), output_tokens=4, after=after)

    calls = (call(500), call(2000), call(2000), call(300), call(2000, (3,)), call(90, (2, 4)))
    ready = fit(program(*calls), 1000, 4.0)
    assert ready.cut
    assert [one.prompt_tokens for one in ready.calls] == [500, 300, 90]
    # A call waits for those that the calls left out before it waited for.
    assert [one.call.needs(n) for n, one in enumerate(ready.calls)] == [(), (0,), (0, 1)]


def test_tool_calls_count_as_text():
    plain = message_bytes([message(10)])
    assert message_bytes([{**message(10), "tool_calls": [{"a": 1}]}]) > plain


def test_parts_are_counted_exactly_and_arrivals_stay():
    call = TraceCall(parts=(Part("a", 90), Part("b", 11)), output_tokens=10)
    ready = fit(TraceProgram("p", (call,), 7.5), 1000, 4.0)
    assert ready.calls[0].prompt_tokens == 101
    assert ready.arrival_s == 7.5


def test_tools_count_as_prompt_tokens():
    plain = TraceCall(messages=(message(40),), output_tokens=1)
    tools = TraceCall(messages=(message(40),), tools=({"type": "x" * 400},), output_tokens=1)
    first, second = (fit(program(call), 1000, 4.0).calls[0] for call in (plain, tools))
    assert second.prompt_tokens > first.prompt_tokens + 100


def test_short_message_with_long_tools_is_unchanged():
    call = TraceCall(messages=(message(40),), tools=({"type": "x" * 3000},), output_tokens=1)
    ready = fit(program(call), 1000, 4.0)
    assert not ready.trimmed
    assert ready.calls[0].call == call


@pytest.mark.parametrize("nothing", [TraceCall(), TraceCall(parts=(Part("a", 0), Part("b", 0)))])
def test_call_without_a_prompt_is_refused(nothing):
    said = TraceCall(parts=(Part("a", 5),))
    with pytest.raises(TraceError, match="call 1 of p has no prompt"):
        fit(TraceProgram("p", (said, nothing)), 100, 4.0)
