"""Events as values."""

from __future__ import annotations

from weft_gateway.model import ProgramKey
from weft_gateway.programs.events import Started, new_id


def test_ids_differ_and_events_with_the_same_id_are_equal():
    assert new_id() != new_id()
    key = ProgramKey("t", "p")
    assert Started(key, 1.0, "e") == Started(key, 1.0, "e")
    assert Started(key, 1.0, "e") != Started(key, 1.0, "f")
