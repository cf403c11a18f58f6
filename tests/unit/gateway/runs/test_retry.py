"""Repetitions of failed calls."""

from __future__ import annotations

from random import Random

import pytest
from weft_gateway.runs.retry import may_pass, pause


def test_only_errors_that_may_pass_are_repeated() -> None:
    assert all(map(may_pass, (408, 425, 429, 500, 502, 503, 529)))
    assert not any(map(may_pass, (400, 401, 403, 404, 409, 413, 422)))


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("3", 3.0, 3.5),
        ("0", 0.0, 0.0),
        ("Thu, 01 Jan 1970 00:01:45 GMT", 5.0, 5.5),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0, 0.0),
        ("999999999999", 120.0, 120.5),
        ("soon", 0.25, 0.5),
        (None, 0.25, 0.5),
    ],
)
def test_the_server_may_ask_for_a_pause(header: str | None, least: float, most: float) -> None:
    assert least <= pause(1, header, 100.0, Random(1)) <= most


def test_pauses_grow_to_a_limit() -> None:
    assert pause(3, None, 0.0, Random(1)) > pause(1, None, 0.0, Random(2))
    assert 15 <= pause(99, None, 0.0, Random(1)) <= 30
