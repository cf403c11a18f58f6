"""The text of the demo tokenizer."""

from __future__ import annotations

import json

from weft_deploy.local.demo import corpus


def test_the_text_is_the_same_each_time():
    assert list(corpus.pieces()) == list(corpus.pieces())


def test_words_are_listed_once_and_in_lower_case():
    words = corpus.words()
    assert len(words) == len(set(words)) > 2500
    assert all(word == word.lower() for word in words)


def test_frequent_words_are_repeated_more_often():
    pieces = list(corpus.pieces())
    assert pieces.count(" the") > pieces.count(" customer") > pieces.count(" zone") > 1


def test_the_text_has_three_forms_of_json():
    pieces = [piece for piece in corpus.pieces() if piece.startswith("{")]
    assert all(isinstance(json.loads(piece), dict) for piece in pieces)
    assert any(piece.startswith('{"name":"') for piece in pieces)
    assert any(piece.startswith('{"name": "') for piece in pieces)
    assert any(piece.startswith('{\n  "name": "') for piece in pieces)
