"""The report of the tags bench."""

from __future__ import annotations

import pytest
from weft_bench.micro.tags.command import COLUMNS, values
from weft_bench.micro.tags.way import Tagged


def test_first_calls_are_counted_separately() -> None:
    calls = [
        Tagged(
            messages=1, prompt_tokens=100, blocks=6, roles=roles, wire=wire, plain=plain,
            tokens_off=off, count_s=count_s, learn_s=1e-5,
        )
        for roles, wire, plain, off, count_s in (
            (0.5, 0.6, 0.1, 30, 1e-3), (0.9, 1.0, 0.2, -2, 5e-5), (1.0, 1.0, 0.4, 4, 7e-5),
        )
    ]  # fmt: skip
    found = values(calls, warm_up=1)
    assert set(found) == {column.figure for column in COLUMNS}
    assert found["calls"] == 3
    assert found["roles_mean"] == pytest.approx(0.95)
    assert found["first_roles_mean"] == pytest.approx(0.5)
    assert found["wire_p5"] == pytest.approx(1.0)
    assert found["plain_mean"] == pytest.approx(0.3)
    assert found["tokens_off_p50"] == pytest.approx(0.03)
    assert found["tag_p50"] == pytest.approx(7e-5)
