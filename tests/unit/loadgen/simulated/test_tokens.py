"""Four bytes are a token, words are numbered, and equal prefixes have equal blocks."""

from __future__ import annotations

from weft_bench.simulated.tokens import FIRST_WORD, block_hashes, ids, of_ids, pad, word, words


def test_words_are_numbered_and_are_one_token_each():
    assert words(3) == " 000 001 002"
    assert words(5000) == "".join(word(number) for number in range(5000))
    assert len({word(number) for number in range(36**3)}) == 36**3
    assert word(36**3) == word(0)


def test_words_of_an_answer_have_consecutive_ids_outside_other_text():
    assert list(ids(words(4).encode())) == [FIRST_WORD + number for number in range(4)]
    assert list(ids(of_ids([7, 9]))) == [7, 9]
    assert max(ids(b"ABCD" + pad(b"x"))) < FIRST_WORD


def test_hashes_cover_full_blocks_and_all_text_before():
    text = b"abcd" * 32
    assert len(block_hashes(text, 16)) == 2
    assert len(block_hashes(text[:-4], 16)) == 1
    assert block_hashes(text, 16)[0] == block_hashes(text + b"more", 16)[0]
    assert len(set(block_hashes(text, 16))) == 2
