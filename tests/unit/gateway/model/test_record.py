"""Records compare by value and require all their fields."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_gateway.model import Closing, Outcome, Program, ProgramKey, Thread

KEY = ProgramKey("t", "p")


def test_records_compare_by_value_and_can_be_replaced():
    assert Program(KEY, 1.0) == Program(KEY, 1.0)
    assert Program(KEY, 1.0) != Program(KEY, 2.0)
    assert replace(Program(KEY, 1.0), service_s=3.0).service_s == 3.0


def test_replicas_of_a_program_are_unique_with_the_home_first():
    threads = (Thread("a", "main", "r1", 0.0), Thread("b", "main", "r0", 0.0))
    assert Program(KEY, 0.0, home="r0", threads=threads).replicas == ("r0", "r1")
    last = Program(KEY, 0.0, home="r0", threads=threads, last_replica="r2")
    assert last.replicas == ("r0", "r1", "r2")
    assert Program(KEY, 0.0, last_replica="r2").replicas == ("r2",)
    assert Program(KEY, 0.0).replicas == ()


def test_record_without_a_required_field_is_refused():
    with pytest.raises(TypeError):
        Closing(key=KEY, call="c", outcome=Outcome.OK)  # type: ignore[call-arg]
