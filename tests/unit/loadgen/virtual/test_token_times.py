"""Times of an answer's tokens."""

from __future__ import annotations

from types import SimpleNamespace

from weft_bench.virtual.replica import TokenTimes


def requests(**done):
    return {name: SimpleNamespace(_output_token_ids=[0] * count) for name, count in done.items()}


def test_tokens_have_the_times_of_their_steps():
    times = TokenTimes()
    times.watch("a", [1, 3, 3, 6])
    times.passed(requests(a=1, b=4), (1.0,))
    # Four merged steps.
    times.passed(requests(a=5), (2.0, 3.0, 4.0, 5.0))
    assert times.take("a", 6.0) == [1.0, 3.0, 3.0, 6.0]


def test_waiting_call_gets_no_token():
    times = TokenTimes()
    times.watch("a", [2])
    times.passed(requests(a=1), (1.0,))
    times.passed(requests(a=1), (2.0, 3.0))
    times.passed(requests(a=2), (4.0,))
    assert times.take("a", 9.0) == [4.0]


def test_unwatched_call_has_no_times():
    times = TokenTimes()
    times.passed(requests(a=1), (1.0,))
    assert times.take("a", 2.0) == []
