"""Virtual token counters."""

from __future__ import annotations

from weft_engine.orders.token_counters import TokenCounters


def test_written_tokens_weigh_twice_as_much_as_read_ones():
    counters = TokenCounters()
    counters.arrive("p", [])
    counters.serve("p", 10, 3)
    assert counters.of("p") == 16.0


def test_a_program_that_was_idle_cannot_save_up_turns():
    counters = TokenCounters()
    counters.arrive("busy", [])
    counters.serve("busy", 100, 0)
    counters.arrive("new", ["busy"])
    assert counters.of("new") == 100.0
    # One that is active keeps what it has.
    counters.serve("busy", 50, 0)
    counters.arrive("new", ["busy", "new"])
    assert counters.of("new") == 100.0


def test_unknown_programs_have_nothing_and_old_ones_are_forgotten():
    counters = TokenCounters()
    assert counters.of("nobody") == 0.0
    for number in range(65_537):
        counters.arrive(f"p{number}", [])
        counters.serve(f"p{number}", 1, 0)
    assert counters.of("p0") == 0.0
    assert counters.of("p1") == 1.0
