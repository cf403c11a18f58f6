"""Tokens and block hashes of prompts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from loadgen.fit import ReadyCall, fit
from loadgen.schema import Part, TraceCall, TraceProgram
from loadgen.sim.content import PromptBook, parts_of, place

SYSTEM = Part("system", 40, "system")


def common(a, b):
    for count, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return count
    return min(len(a), len(b))


def test_equal_parts_have_equal_tokens_and_others_have_others():
    book = PromptBook(16)
    one = book.prompt("p", (SYSTEM, Part("a", 30)))
    two = book.prompt("q", (SYSTEM, Part("b", 30)))
    assert common(one.tokens, two.tokens) == 40
    assert common(one.hashes, two.hashes) == 2
    assert not set(one.tokens[40:]) & set(two.tokens)
    assert [len(p.tokens) for p in (one, two)] == [70, 70]


def test_the_same_part_after_another_is_another_block():
    book = PromptBook(16)
    one = book.prompt("p", (Part("x", 16), SYSTEM))
    two = book.prompt("q", (Part("y", 16), SYSTEM))
    assert one.tokens[16:] == two.tokens[16:]
    assert common(one.hashes, two.hashes) == 0


@pytest.mark.parametrize(
    "grown", [(SYSTEM, Part("a", 30), Part("b", 5)), (SYSTEM,), (Part("z", 9),)]
)
def test_a_prompt_made_from_the_last_one_is_as_one_made_anew(grown):
    book = PromptBook(16)
    book.prompt("p", (SYSTEM, Part("a", 30)))
    assert book.prompt("p", grown) == PromptBook(16).prompt("p", grown)


def test_a_longer_part_begins_as_a_shorter_one_of_its_name():
    book = PromptBook(16)
    short = book.prompt("p", (Part("a", 10),))
    assert common(short.tokens, book.prompt("p", (Part("a", 99),)).tokens) == 10


def test_answers_are_hashed_as_the_prompts_that_they_return_in():
    book = PromptBook(16)
    prompt = book.prompt("p", (SYSTEM,))
    request = SimpleNamespace(block_hashes=[], _all_token_ids=list(prompt.tokens))
    hasher = book.hasher(prompt)
    request.block_hashes += hasher(request)
    for step in range(60):
        request._all_token_ids.append(place("answer") + step)
        request.block_hashes += hasher(request)
    returned = book.prompt("p", (SYSTEM, Part("answer", 60)))
    assert request.block_hashes == returned.hashes
    assert len(request.block_hashes) == 100 // 16


def test_a_prompt_shorter_than_a_block_is_hashed_with_its_answer():
    book = PromptBook(16)
    prompt = book.prompt("p", (Part("short", 3),))
    request = SimpleNamespace(block_hashes=[], _all_token_ids=list(prompt.tokens))
    hasher = book.hasher(prompt)
    assert hasher(request) == []
    request._all_token_ids += range(place("answer"), place("answer") + 40)
    assert hasher(request) == book.prompt("q", (Part("short", 3), Part("answer", 40))).hashes


def test_messages_become_parts_of_the_same_length_and_of_the_same_content():
    """Whatever comes after a message, it ends at the same token, else nobody could share it."""
    texts = ["s" * 401, "u" * 37, "a" * 50, "t" * 71, "a" * 13, "t" * 58]
    roles = ("system", "user", "assistant", "tool", "assistant", "tool")
    messages = tuple({"role": r, "content": t} for r, t in zip(roles, texts, strict=True))
    longest: tuple[Part, ...] = ()
    for count in range(1, len(messages) + 1):
        trace = TraceProgram("p", (TraceCall(messages=messages[:count], output_tokens=1),))
        (call,) = fit(trace, 10_000, 3.7).calls
        parts = parts_of(call, {}, 3.7)
        assert sum(part.tokens for part in parts) == call.prompt_tokens
        assert parts[: len(longest)] == longest
        longest = parts
    assert [part.kind for part in longest] == list(roles)


def test_token_ids_become_parts_by_what_they_begin_with():
    ids = tuple(range(300, 350))
    mine = parts_of(ReadyCall(TraceCall(prompt_ids=ids), 50, 5), {}, 4.0)
    other = parts_of(ReadyCall(TraceCall(prompt_ids=(*ids[:32], *ids[:18])), 50, 5), {}, 4.0)
    assert sum(part.tokens for part in mine) == 50
    assert common(mine, other) == 2
