"""The index of replicas by prompt prefix."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import PromptPrefix
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex


def begins(text: str, step: int = 100) -> PromptPrefix:
    """Return the prefix of a text. Each letter is one step."""
    return PromptPrefix(tuple(map(hash, accumulate(text))), step)


def tokens(sent: PrefixAffinityIndex, text: str, *replicas: str) -> dict[str, int] | None:
    shared = sent.shared(begins(text), replicas)
    return None if shared is None else dict(shared.tokens)


def test_longest_common_prefix_is_found_for_each_replica():
    sent = PrefixAffinityIndex(10_000)
    sent.sent("a", begins("sxyz"))
    sent.sent("b", begins("suv"))
    assert tokens(sent, "sxyw", "a", "b", "c") == {"a": 300, "b": 100, "c": 0}
    assert tokens(sent, "sxyzmore", "a", "b", "c") == {"a": 400, "b": 100, "c": 0}
    assert tokens(sent, "xyz", "a", "b", "c") is None, "equal text after a different prefix"


def test_prefix_on_all_replicas_gives_no_preference():
    sent = PrefixAffinityIndex(10_000)
    sent.sent("a", begins("sx"))
    sent.sent("b", begins("sy"))
    assert tokens(sent, "sz", "a", "b") is None
    assert tokens(sent, "sz", "a", "b", "c") == {"a": 100, "b": 100, "c": 0}
    assert tokens(sent, "sx", "a") is None


def test_full_replica_drops_the_oldest_prefix_from_its_end():
    sent = PrefixAffinityIndex(500)
    sent.sent("a", begins("sxy"))
    sent.sent("a", begins("suvw"))
    assert tokens(sent, "sxy", "a", "b") == {"a": 200, "b": 0}
    assert tokens(sent, "suvw", "a", "b") == {"a": 400, "b": 0}


def test_reported_room_limits_the_tokens_of_a_replica():
    sent = PrefixAffinityIndex(10_000)
    sent.room("a", 200)
    sent.sent("a", begins("sxy"))
    sent.sent("b", begins("sxy"))
    assert tokens(sent, "sxy", "a", "b") == {"a": 200, "b": 300}
    sent.room("a", 0)
    sent.sent("a", begins("sxy"))
    assert tokens(sent, "sxy", "a", "b") == {"a": 0, "b": 300}


def test_forgetting_a_replica_keeps_the_others():
    sent = PrefixAffinityIndex(10_000)
    sent.sent("a", begins("sxy"))
    sent.sent("b", begins("sx"))
    sent.forget("a")
    sent.forget("never seen")
    assert tokens(sent, "sxy", "a", "b") == {"a": 0, "b": 200}


def test_popular_prefix_counts_only_on_enough_replicas():
    sent = PrefixAffinityIndex(10_000)
    for _ in range(20):
        sent.sent("a", begins("hot"))
    assert tokens(sent, "hot", "a", "b", "c", "d") == {"a": 0, "b": 0, "c": 0, "d": 0}
    for replica in "bc":
        sent.sent(replica, begins("hot"))
    assert tokens(sent, "hot", "a", "b", "c", "d") == {"a": 300, "b": 300, "c": 300, "d": 0}


def test_popular_steps_do_not_count():
    sent = PrefixAffinityIndex(100_000)
    for letter in "abcdefghijklmnopqrst":
        sent.sent("a", begins("s" + letter))
    assert tokens(sent, "sk", "a", "b", "c", "d") == {"a": 100, "b": 0, "c": 0, "d": 0}
    assert tokens(sent, "s", "a", "b", "c", "d") == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_popularity_depends_on_recent_programs_only():
    sent = PrefixAffinityIndex(1_000_000)
    for _ in range(200):
        sent.sent("a", begins("old"))
    assert tokens(sent, "old", "a", "b", "c", "d")["a"] == 0
    for number in range(200):
        sent.sent("b", PromptPrefix((number,), 100))
    assert tokens(sent, "old", "a", "b", "c", "d")["a"] == 300, "56 of the last 256 begin so"


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.text("xy", min_size=1, max_size=6))),
    st.integers(0, 1200),
    st.text("xy", min_size=1, max_size=6),
)
def test_shared_tokens_are_limited_by_sent_prompts_and_room(all_sent, room, asked):
    sent = PrefixAffinityIndex(room)
    for replica, text in all_sent:
        sent.sent(replica, begins(text))
    found = tokens(sent, asked, "a", "b", "never") or {}
    for replica, known in found.items():
        reach = asked[: known // 100]
        assert known <= room
        assert not reach or any(r == replica and t.startswith(reach) for r, t in all_sent)


def test_negative_room_is_refused():
    with pytest.raises(ValueError, match="-1"):
        PrefixAffinityIndex(-1)


def test_sending_a_prefix_returns_the_tokens_that_the_replica_had():
    sent = PrefixAffinityIndex(10_000)
    assert sent.sent("a", begins("sx")) == 0
    assert sent.sent("a", begins("sy")) == 100
    assert sent.sent("b", begins("sy")) == 0
    assert sent.sent("a", begins("syz")) == 200
