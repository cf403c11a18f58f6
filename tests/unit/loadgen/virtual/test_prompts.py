"""Tokens, block hashes and keys of prompts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from weft_bench.virtual.prompts import PromptBook, place, tokens_of
from weft_bench.workloads.schema import Part

SYSTEM = Part("system", 40, "system")


def common(a, b):
    for count, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return count
    return min(len(a), len(b))


def tokens(prompt):
    return tokens_of(prompt.parts, prompt.ends, 0)


def test_equal_parts_have_equal_tokens_and_others_have_others():
    book = PromptBook(16)
    one = book.prompt("p", (SYSTEM, Part("a", 30)))
    two = book.prompt("q", (SYSTEM, Part("b", 30)))
    assert common(tokens(one), tokens(two)) == 40
    assert common(one.hashes, two.hashes) == common(one.keys, two.keys) == 2
    assert not set(tokens(one)[40:]) & set(tokens(two))
    assert [len(tokens(p)) for p in (one, two)] == [one.length, two.length] == [70, 70]


def test_the_same_part_after_another_is_another_block():
    book = PromptBook(16)
    one = book.prompt("p", (Part("x", 16), SYSTEM))
    two = book.prompt("q", (Part("y", 16), SYSTEM))
    assert tokens(one)[16:] == tokens(two)[16:]
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
    assert common(tokens(short), tokens(book.prompt("p", (Part("a", 99),)))) == 10


def test_answers_are_hashed_as_the_prompts_that_they_return_in():
    book = PromptBook(16)
    prompt = book.prompt("p", (SYSTEM,))
    request = SimpleNamespace(block_hashes=[], _output_token_ids=[])
    hasher = book.hasher(prompt)
    request.block_hashes += hasher(request)
    for step in range(60):
        request._output_token_ids.append(place("answer") + step)
        request.block_hashes += hasher(request)
    returned = book.prompt("p", (SYSTEM, Part("answer", 60)))
    assert request.block_hashes == returned.hashes
    assert request.block_keys == returned.keys
    assert len(request.block_hashes) == 100 // 16


def test_a_prompt_shorter_than_a_block_is_hashed_with_its_answer():
    book = PromptBook(16)
    prompt = book.prompt("p", (Part("short", 3),))
    request = SimpleNamespace(block_hashes=[], _output_token_ids=[])
    hasher = book.hasher(prompt)
    assert hasher(request) == []
    request._output_token_ids += range(place("answer"), place("answer") + 40)
    assert hasher(request) == book.prompt("q", (Part("short", 3), Part("answer", 40))).hashes


@pytest.mark.parametrize("start", [0, 1, 39, 40, 41, 69])
def test_tokens_from_the_middle_on_are_those_of_the_whole(start):
    prompt = PromptBook(16).prompt("p", (SYSTEM, Part("a", 30)))
    assert tokens_of(prompt.parts, prompt.ends, start) == tokens(prompt)[start:]


def test_tokens_of_no_parts_are_hashed_as_those_of_parts():
    book = PromptBook(16)
    named = book.prompt("p", (SYSTEM, Part("a", 30)))
    bare = book.of_tokens(tokens(named))
    assert (bare.length, bare.hashes, bare.keys, bare.tail) == (
        70, named.hashes, named.keys, tokens(named)[64:],
    )  # fmt: skip


@pytest.mark.engine
def test_a_key_is_what_vllms_cache_calls_a_block():
    compat_kv = pytest.importorskip("weft_engine.compat_kv")
    prompt = PromptBook(16).prompt("p", (SYSTEM,))
    assert prompt.keys == [compat_kv.block_key(found) for found in prompt.hashes]
