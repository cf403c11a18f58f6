"""Deadlines, against a plain dictionary of instants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.deadlines import Deadlines


def test_a_deadline_passes_once() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 5.0)
    deadlines.set("b", 3.0)
    assert deadlines.due(2.9) == []
    assert deadlines.due(3.0) == ["b"]
    assert deadlines.due(9.0) == ["a"]
    assert deadlines.due(99.0) == []
    assert len(deadlines) == 0


def test_the_latest_deadline_replaces_earlier_ones() -> None:
    deadlines = Deadlines()
    deadlines.set("later", 3.0)
    deadlines.set("later", 8.0)
    deadlines.set("sooner", 8.0)
    deadlines.set("sooner", 3.0)
    deadlines.set("dropped", 3.0)
    deadlines.drop("dropped")
    deadlines.drop("unknown")
    assert deadlines.due(5.0) == ["sooner"]
    assert deadlines.due(8.0) == ["later"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "drop", "due"]), st.integers(0, 3), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_any_order_of_events_gives_what_a_dictionary_would(
    steps: list[tuple[str, int, int]],
) -> None:
    deadlines, plain, now = Deadlines(), dict[str, float](), 0.0
    for action, which, amount in steps:
        name = f"p{which}"
        if action == "set":
            deadlines.set(name, now + amount)
            plain[name] = now + amount
        elif action == "drop":
            deadlines.drop(name)
            plain.pop(name, None)
        else:
            now += amount
            ended = {name for name, until in plain.items() if until <= now}
            assert set(deadlines.due(now)) == ended
            plain = {name: until for name, until in plain.items() if name not in ended}
        assert len(deadlines) == len(plain)


def test_many_renewals_leave_few_entries() -> None:
    deadlines = Deadlines()
    for instant in range(10_000):
        deadlines.set("p", float(instant))
    assert len(deadlines._heap) < 200
    assert deadlines.due(1e9) == ["p"]
