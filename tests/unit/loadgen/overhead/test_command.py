"""Answers that the overhead bench counts."""

from __future__ import annotations

from weft_bench.overhead.command import Cell, checked


def test_answer_that_no_engine_gave_is_an_error():
    cell = Cell(per_second=1e6, p50_ms=0.01, p99_ms=0.02, errors=0)
    assert checked(cell, 100, 100).errors == 0
    assert checked(cell, 100, 60).errors == 40


def test_retries_of_a_proxy_do_not_reduce_its_errors():
    cell = Cell(per_second=10, p50_ms=1, p99_ms=2, errors=3)
    assert checked(cell, 100, 104).errors == 3
