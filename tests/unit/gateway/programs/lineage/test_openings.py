"""First turns that nobody takes up are kept as they came, and read when somebody comes back."""

from __future__ import annotations

import json

import pytest
from support.lineage import SYSTEM, Gateway, called, result, run, said, user
from weft_gateway.programs.lineage.memory import MemoryLineage
from weft_gateway.programs.lineage.openings import (
    ALONE,
    LONG,
    SAMPLED,
    SELDOM,
    Opening,
    Openings,
    texts_of,
)
from weft_gateway.programs.lineage.rules import MAX_TWINS, Asked, How

TOOLS = [{"type": "function", "function": {"name": "find"}}]


def alone(gateway: Gateway, count: int = ALONE + 1) -> None:
    """First turns that nothing comes of. After one more than ALONE, the next one is kept."""
    for number in range(count):
        gateway.turn(SYSTEM, user(f"classify {number}"), answer=said("good"))


def ask(gateway: Gateway, *messages, **body) -> Asked | Opening:
    return gateway.ask(*messages, **body)


def test_after_many_first_turns_in_a_row_the_next_are_only_kept():
    gateway = Gateway()
    alone(gateway, ALONE)
    held = gateway.store.held
    kept = [ask(gateway, SYSTEM, user(f"now {n}")) for n in range(3 * SAMPLED)]
    looked = [call for call in kept if isinstance(call, Asked)]
    assert len(looked) == 3
    assert gateway.store.held == held + 3


def test_one_tenants_first_turns_say_nothing_of_anothers():
    gateway = Gateway()
    alone(gateway)
    assert isinstance(ask(gateway, SYSTEM, user("a"), tenant="u"), Asked)
    assert isinstance(ask(gateway, SYSTEM, user("a")), Opening)


@pytest.mark.parametrize("stream", [False, True])
def test_who_comes_back_to_a_kept_one_goes_on_from_its_answer(stream):
    gateway = Gateway()
    alone(gateway)
    first = ask(gateway, SYSTEM, user("hello"))
    assert isinstance(first, Opening)
    events = [{"choices": [{"delta": {"content": text}}]} for text in ("Hi ", "there")]
    lines = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    whole = json.dumps({"choices": [{"message": said("Hi there")}]}).encode()
    run(gateway.lineage.answered(first, lines if stream else whole, stream, gateway.now))
    other = ask(gateway, SYSTEM, user("hello"), said("Good day"), user("bye"))
    then = ask(gateway, SYSTEM, user("hello"), said("Hi there"), user("bye"))
    assert (then.verdict.how, then.verdict.program) == (How.EXTENDS, first.fresh)
    assert other.verdict.program in (first.fresh, other.verdict.owner)
    # Somebody has come back: what comes now is looked into.
    assert isinstance(ask(gateway, SYSTEM, user("something else")), Asked)


def test_who_comes_back_while_the_answer_is_on_its_way_is_found_too():
    gateway = Gateway()
    alone(gateway)
    first = ask(gateway, SYSTEM, user("hello"))
    second = ask(gateway, SYSTEM, user("hello"), user("are you there?"))
    assert second.verdict.program == first.fresh
    gateway.answer(first, said("Yes, I am"))
    third = ask(gateway, SYSTEM, user("hello"), said("Yes, I am"), user("good"))
    assert third.verdict.program == first.fresh


def test_a_second_try_of_a_kept_one_joins_it():
    gateway = Gateway()
    alone(gateway)
    first = ask(gateway, SYSTEM, user("hello"))
    gateway.fail(first)
    second = ask(gateway, SYSTEM, user("hello"))
    assert (second.verdict.how, second.verdict.program) == (How.REPEATS, first.fresh)


def test_the_first_repeats_are_looked_into_and_of_a_crowd_the_last_ones_are_kept():
    gateway = Gateway()
    alone(gateway)
    calls = [ask(gateway, SYSTEM, user("hello")) for _ in range(MAX_TWINS + 3)]
    kinds = [type(call) for call in calls]
    assert kinds == [Opening, *[Asked] * (MAX_TWINS - 1), *[Opening] * 3]
    assert {call.verdict.program for call in calls[1:MAX_TWINS]} == {calls[0].fresh}


def test_calls_that_quote_each_others_answers_are_found_out():
    gateway = Gateway()
    alone(gateway)
    history: list[str] = []
    found = []
    for number in range(3 * SAMPLED):
        call = ask(gateway, user(f"Report no {number} after these. {' '.join(history)}"))
        found.append(isinstance(call, Asked) and call.verdict.how is How.QUOTES)
        history.append(
            f"In the year {number} of the town there was a museum of clocks. "
            f"It was opened by the mayor of number {number} and is closed now."
        )
        gateway.answer(call, said(history[-1]))
    assert True in found
    # And from then on they are looked into.
    assert all(found[found.index(True) + 1 :])


def test_the_longer_nothing_goes_on_the_fewer_are_looked_into():
    openings = Openings()
    for number in range(ALONE):
        openings.saw("t", {"messages": [user(f"{number}")]}, alone=True)

    def looked_into(calls: range) -> int:
        asked = [{"messages": [user(f"{number}")]} for number in calls]
        return sum(openings.keep("t", body, "p", 1.0) is None for body in asked)

    assert looked_into(range(ALONE, LONG)) == (LONG - ALONE) // SAMPLED
    assert looked_into(range(LONG, 2 * LONG)) == LONG // SELDOM


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user("a")], "tools": TOOLS},
        {"messages": [user("a"), said("b"), user("c")]},
        {"messages": [called("f"), result("1")]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"messages": [user("a")], "system": "You are brief."},
        {"messages": []},
        {"messages": "a"},
        {"messages": [None]},
        {"prompt": "a"},
        {"input": "a"},
    ],
)
def test_only_plain_first_turns_are_kept(body):
    assert texts_of({"model": "m", **body}) is None
    openings = Openings()
    for _ in range(ALONE + 1):
        openings.saw("t", {"messages": [user("x")]}, alone=True)
    assert openings.keep("t", body, "p", 1.0) is None
    openings.saw("t", body, alone=True)
    assert openings.keep("t", {"messages": [user("x")]}, "p", 1.0) is None


def test_no_more_bytes_are_kept_than_there_may_be():
    openings = Openings(kept_bytes=100_000)
    for _ in range(ALONE + 1):
        openings.saw("t", {"messages": [user("x")]}, alone=True)
    kept = []
    for number in range(2000):
        body = {"messages": [user(f"{number % 500} {'x' * 3000}")]}
        kept.append(openings.keep("t", body, f"p{number}", 1.0))
        if kept[-1] is not None:
            openings.answered(kept[-1], b"y" * 2000, False)
        assert 0 <= openings.held <= 100_000
    last = next(call for call in reversed(kept) if call is not None)
    assert last in openings.taken_up("t", {"messages": [user(last.texts[-1][1]), said("y")]})
    for number in range(2000):
        openings.taken_up("t", {"messages": [user(f"{number % 500} {'x' * 3000}")]})
    assert sum(len(group.kept) for group in openings._groups.values()) == 0
    assert openings.held == sum(group.held for group in openings._groups.values())


def test_what_is_too_large_is_not_kept():
    openings = Openings()
    for _ in range(ALONE + 1):
        openings.saw("t", {"messages": [user("x")]}, alone=True)
    openings.keep("t", {"messages": [user("first")]}, "p", 1.0)
    assert openings.keep("t", {"messages": [user("x" * 50_000)]}, "p", 1.0) is None
    kept = openings.keep("t", {"messages": [user("x")]}, "p", 1.0)
    assert kept is not None
    before = openings.held
    openings.answered(kept, b"x" * 50_000, False)
    assert openings.held == before


@pytest.mark.parametrize(
    "before",
    [[user("x" * 50_000)], [user("")] * 2000],
    ids=["long", "many"],
)
def test_each_counts_what_comes_before_the_text_that_it_shares_with_others(before):
    openings = Openings()
    for _ in range(ALONE + 1):
        openings.saw("t", {"messages": [user("x")]}, alone=True)
    openings.keep("t", {"messages": [user("first")]}, "p", 1.0)
    small = {"messages": [user("hello")]}
    kept = [openings.keep("t", small, f"p{number}", 1.0) for number in range(MAX_TWINS + 1)]
    assert kept[-1] is not None
    held = openings.held
    assert openings.keep("t", {"messages": [*before, user("hello")]}, "q", 1.0) is None
    assert openings.held == held
    larger = {"messages": [user("y" * 5000), user("hello")]}
    assert openings.keep("t", larger, "r", 1.0) is not None
    assert openings.held >= held + 5000


def test_where_gateways_share_what_they_know_nothing_is_kept():
    class Shared(MemoryLineage):
        shared = True

    gateway = Gateway(Shared())
    alone(gateway)
    calls = [ask(gateway, SYSTEM, user(f"a{n}")) for n in range(2 * SAMPLED)]
    assert {type(call) for call in calls} == {Asked}
