"""The text of the emulated model."""

from __future__ import annotations

import numpy
import pytest
from weft_engine.emulated.tokens import Vocabulary, draw, seed_of

PIECES = ["<pad>", "<eos>", '"', "}", "]", ",", "Ġ", "Ċ", "1", "Ġone", "Ġtwo", "Ġthree", "x"]
EOS, QUOTE, BLANK, DIGIT, ONE = 1, 2, 6, 8, 9
WORDS = {9, 10, 11}


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(PIECES, {0, EOS})


def row(*allowed):
    bits = numpy.zeros(32, dtype=numpy.uint8)
    bits[list(allowed)] = 1
    return numpy.packbits(bits, bitorder="little").view(numpy.int32)


def test_answers_are_words_that_depend_on_prompt_and_position(vocabulary):
    def answer(prompt):
        return [vocabulary.word(seed_of(prompt), position, {EOS}) for position in range(50)]

    assert answer([1, 2]) == answer([1, 2])
    assert answer([1, 2]) != answer([1, 3])
    assert set(answer([1, 2])) == WORDS


def test_stop_tokens_are_not_written(vocabulary):
    assert {vocabulary.word(5, position, {EOS, 9, 10}) for position in range(50)} == {11}
    with pytest.raises(ValueError, match="stop token"):
        vocabulary.word(5, 0, WORDS)


def test_a_vocabulary_without_words_writes_any_text():
    plain = Vocabulary(["a", "b", "<eos>"], {2})
    assert {plain.word(1, position) for position in range(20)} == {0, 1}


@pytest.mark.parametrize("position", range(40))
def test_a_grammar_is_obeyed(vocabulary, position):
    assert vocabulary.allowed(3, position, {EOS}, row(DIGIT, BLANK)) == DIGIT
    assert vocabulary.allowed(3, position, {EOS}, row(ONE, QUOTE)) in (ONE, QUOTE)


def test_a_string_is_closed_after_a_few_tokens(vocabulary):
    text = range(QUOTE, len(PIECES))
    found = [vocabulary.allowed(3, position, {EOS}, row(*text)) for position in range(40)]
    assert QUOTE in found
    assert WORDS & set(found)


def test_the_answer_ends_with_its_grammar(vocabulary):
    for position in range(40):
        assert vocabulary.allowed(3, position, {EOS}, row(EOS, BLANK)) == EOS


def test_free_text_does_not_end(vocabulary):
    everything = row(*range(32))
    for position in range(40):
        assert vocabulary.allowed(3, position, {EOS}, everything) in WORDS


def test_a_grammar_that_may_always_end_ends(vocabulary):
    found = [vocabulary.allowed(3, position, {EOS}, row(EOS, *WORDS)) for position in range(40)]
    assert EOS in found
    assert WORDS & set(found)


def test_draws_are_spread():
    assert len({draw(1, position) % 1000 for position in range(1000)}) > 600
