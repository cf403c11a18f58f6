"""Tokens of a text from counts of its characters."""

from __future__ import annotations

from random import Random

import pytest
from weft_gateway.engine.tokens_fit import SIZE, TokenFit, features
from weft_gateway.policies.tags_sections import Section, sections

WORDS = (
    "the",
    "plan",
    "is",
    "to book",
    "a flight",
    "from Boston",
    "to",
    "Lisbon",
    "on May 12",
    "for two",
)


def texts(seed: int, count: int) -> list[str]:
    draws = Random(seed)
    return [" ".join(draws.choices(WORDS, k=draws.randint(5, 200))) for _ in range(count)]


def read(*contents: str) -> list[Section]:
    return sections({"messages": [{"role": "user", "content": text} for text in contents]})


def counted(text: str) -> float:
    """A tokenizer that is unlike the prior: four characters a token, five for each message."""
    return 5 + len(text) / 2.5


def test_a_text_is_its_words_digits_and_marks() -> None:
    assert features("Ab c, d9\n\xe9", 2) == [1.0, 2, 2, 3, 1, 1, 1, 1, 2]


def test_the_prior_is_near_what_large_vocabularies_make_of_english() -> None:
    text = (
        "Before taking any action that updates the booking, you must list its details and obtain "
        "explicit confirmation from the customer (yes) to proceed with it."
    )
    # 27 words and 3 marks: 29 to 31 tokens in vocabularies of 100,000 and more.
    assert TokenFit().estimates(read(text)).tokens[0] == pytest.approx(30 + 4, rel=0.2)


def test_it_learns_a_tokenizer_from_sums_of_several_texts() -> None:
    fit = TokenFit()
    for number in range(100):
        some = texts(number, 3)
        estimates = fit.estimates(read(*some))
        fit.learn(estimates.features(0), sum(map(counted, some)), 25.0)
    new = texts(1000, 20)
    found = fit.estimates(read(*new)).tokens
    assert found == pytest.approx([counted(text) for text in new], rel=0.06, abs=2)


def test_one_count_of_something_else_spoils_nothing() -> None:
    fit = TokenFit()
    for number in range(100):
        some = texts(number, 1)
        fit.learn(fit.estimates(read(*some)).features(0), counted(some[0]), 25.0)
    new = texts(1000, 1)
    before = fit.estimates(read(*new)).tokens[0]
    fit.learn(fit.estimates(read(*new)).features(0), 1_000_000, 25.0)
    assert fit.estimates(read(*new)).tokens[0] == pytest.approx(before, rel=0.1)


def test_long_texts_and_many_are_read_in_part_and_come_out_alike() -> None:
    fit = TokenFit()
    short = texts(1, 400)
    whole = sum(sum(fit.estimates(read(text)).tokens) for text in short)
    many = fit.estimates(read(*short))
    assert sum(many.tokens) == pytest.approx(whole, rel=0.05)
    joined = " ".join(short)
    assert fit.estimates(read(joined)).tokens[0] == pytest.approx(whole - 4 * 400, rel=0.05)
    # What is summed for learning is what was counted.
    vector = many.features(0)
    assert len(vector) == SIZE
    assert vector[0] == 400
    assert many.features(399)[0] == 1
    assert many.features(400) == [0.0] * SIZE


@pytest.mark.parametrize("text", ["", "\ud800", "\x00", "漢字かな交じり文", "\n" * 40])
def test_every_text_has_a_token(text: str) -> None:
    assert TokenFit().estimates(read(text)).tokens[0] >= 1


def test_the_more_it_has_seen_the_fewer_it_wants() -> None:
    fit = TokenFit()
    wanted = [fit.wants() for _ in range(2048)]
    assert all(wanted[:128])
    assert sum(wanted[128:1024]) == (1024 - 128) // 8
    assert sum(wanted[1024:]) == 1024 // 64
