"""Where CPU time goes."""

from __future__ import annotations

import signal
import sys
import threading

import pytest
from weft_bench.sampler import Samples, sampled


def outer():
    return inner()


def inner():
    return sys._getframe()


def test_a_function_has_looks_of_its_own_and_of_what_it_calls():
    samples = Samples()
    samples.add(outer())
    samples.add(inner())
    samples.add(None)
    assert samples.count == 2
    assert samples.own == {"test_sampler:inner": 2}
    assert samples.within["test_sampler:inner"] == 2
    assert samples.within["test_sampler:outer"] == 1
    assert len(samples.lines(2)) == 3
    # What runs the test is on the stack too.
    lines = samples.lines(len(samples.within))
    assert any(line.split() == ["100.0%", "100.0%", "test_sampler:inner"] for line in lines)


def test_it_looks_while_it_is_asked_to_and_no_longer():
    before = signal.getsignal(signal.SIGPROF)
    with sampled(0.001) as samples:
        while samples.count < 3:
            pass
    assert samples.within["test_sampler:test_it_looks_while_it_is_asked_to_and_no_longer"] >= 3
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) is before


def test_only_the_main_thread_can_ask():
    found = []

    def ask():
        with pytest.raises(ValueError, match="main thread"), sampled():
            pass
        found.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [True]
