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


def test_tokens_are_equal_only_for_equal_parts():
    book = PromptBook(16)
    one = book.prompt("p", (SYSTEM, Part("a", 30)))
    two = book.prompt("q", (SYSTEM, Part("b", 30)))
    assert common(tokens(one), tokens(two)) == 40
    assert common(one.hashes, two.hashes) == common(one.keys, two.keys) == 2
    assert not set(tokens(one)[40:]) & set(tokens(two))
    assert [len(tokens(p)) for p in (one, two)] == [one.length, two.length] == [70, 70]


def test_equal_part_after_a_different_one_has_other_blocks():
    book = PromptBook(16)
    one = book.prompt("p", (Part("x", 16), SYSTEM))
    two = book.prompt("q", (Part("y", 16), SYSTEM))
    assert tokens(one)[16:] == tokens(two)[16:]
    assert common(one.hashes, two.hashes) == 0


@pytest.mark.parametrize(
    "grown", [(SYSTEM, Part("a", 30), Part("b", 5)), (SYSTEM,), (Part("z", 9),)]
)
def test_extended_prompt_equals_a_new_one(grown):
    book = PromptBook(16)
    book.prompt("p", (SYSTEM, Part("a", 30)))
    assert book.prompt("p", grown) == PromptBook(16).prompt("p", grown)


def test_shorter_part_is_a_prefix_of_a_longer_one():
    book = PromptBook(16)
    short = book.prompt("p", (Part("a", 10),))
    assert common(tokens(short), tokens(book.prompt("p", (Part("a", 99),)))) == 10


def test_answers_have_the_hashes_of_later_prompts():
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
def test_tokens_from_an_offset_equal_those_of_the_whole(start):
    prompt = PromptBook(16).prompt("p", (SYSTEM, Part("a", 30)))
    assert tokens_of(prompt.parts, prompt.ends, start) == tokens(prompt)[start:]


@pytest.mark.engine
def test_key_equals_that_of_vllms_cache():
    compat_kv = pytest.importorskip("weft_engine.compat_kv")
    prompt = PromptBook(16).prompt("p", (SYSTEM,))
    assert prompt.keys == [compat_kv.block_key(found) for found in prompt.hashes]
