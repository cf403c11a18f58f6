"""When priorities end, against a plain dictionary of instants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.endings import Endings


def test_a_priority_ends_once_at_its_instant() -> None:
    endings = Endings()
    assert endings.set_end("a", 5.0) == endings.set_end("b", 3.0) == []
    assert endings.due(2.9) == []
    assert endings.due(3.0) == ["b"]
    assert endings.due(9.0) == ["a"]
    assert endings.due(99.0) == []
    assert len(endings) == 0


def test_the_latest_end_replaces_earlier_ones() -> None:
    endings = Endings()
    endings.set_end("later", 3.0)
    endings.set_end("later", 8.0)
    endings.set_end("sooner", 8.0)
    endings.set_end("sooner", 3.0)
    endings.set_end("dropped", 3.0)
    endings.drop("dropped")
    endings.drop("never told")
    assert endings.due(5.0) == ["sooner"]
    assert endings.due(8.0) == ["later"]


def test_beyond_the_limit_the_least_recently_set_priorities_end() -> None:
    endings = Endings(most=2)
    assert endings.set_end("a", 9.0) == []
    assert endings.set_end("b", 1.0) == []
    assert endings.set_end("a", 8.0) == []
    assert endings.set_end("c", 5.0) == ["b"]
    assert endings.due(99.0) == ["c", "a"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["tell", "drop", "due"]), st.integers(0, 3), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_any_order_of_events_gives_what_a_dictionary_would(
    steps: list[tuple[str, int, int]],
) -> None:
    endings, plain, now = Endings(), dict[str, float](), 0.0
    for action, which, amount in steps:
        name = f"p{which}"
        if action == "tell":
            endings.set_end(name, now + amount)
            plain[name] = now + amount
        elif action == "drop":
            endings.drop(name)
            plain.pop(name, None)
        else:
            now += amount
            ended = {name for name, until in plain.items() if until <= now}
            assert set(endings.due(now)) == ended
            plain = {name: until for name, until in plain.items() if name not in ended}
        assert len(endings) == len(plain)


def test_many_renewals_leave_few_entries() -> None:
    endings = Endings()
    for instant in range(10_000):
        endings.set_end("p", float(instant))
    assert len(endings._heap) < 200
    assert endings.due(1e9) == ["p"]
