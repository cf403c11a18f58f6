"""Repetitions of failed calls."""

from __future__ import annotations

from random import Random

import pytest
from weft_run.io.retry import may_pass, model_is_away, pause


def test_only_errors_that_may_pass_are_repeated() -> None:
    assert all(map(may_pass, (408, 425, 429, 500, 502, 503, 529)))
    assert not any(map(may_pass, (400, 401, 403, 404, 409, 413, 422)))


@pytest.mark.parametrize(
    ("status", "body", "away"),
    [
        (404, b'{"error":{"message":"The model `m` does not exist.","code":404}}', True),
        (404, b'{"error":"Model not found"}', True),
        (404, b'{"detail":"Not Found"}', False),
        (400, b'{"error":{"message":"The model refuses it"}}', False),
    ],
)
def test_a_missing_model_differs_from_a_missing_endpoint(
    status: int, body: bytes, away: bool
) -> None:
    assert model_is_away(status, body) is away


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("3", 3.0, 3.5),
        ("0", 0.0, 0.0),
        ("Thu, 01 Jan 1970 00:01:45 GMT", 5.0, 5.5),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0, 0.0),
        ("999999999999", 120.0, 120.5),
        ("soon", 0.25, 0.5),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", 0.25, 0.5),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0.25, 0.5),
        ("Fri, 31 Dec 9999 23:59:59 -1200", 0.0, 120.5),
        (None, 0.25, 0.5),
    ],
)
def test_the_server_may_ask_for_a_pause(header: str | None, least: float, most: float) -> None:
    assert least <= pause(1, header, 100.0, Random(1)) <= most


def test_pauses_grow_to_a_limit() -> None:
    assert pause(3, None, 0.0, Random(1)) > pause(1, None, 0.0, Random(2))
    assert 15 <= pause(99, None, 0.0, Random(1)) <= 30
