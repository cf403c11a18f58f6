"""Sessions as JSON, and the ids in their paths."""

import pytest

from gateway.api.errors import ApiError
from gateway.api.sessions import checked_id, decoded_id, session_json
from gateway.model import Program, ProgramKey, Thread


def test_a_program_is_shown_whole() -> None:
    thread = Thread("c2", "main", "r1", arrival_s=11.0)
    program = Program(
        ProgramKey("tenant", "run"),
        arrival_s=10.0,
        service_s=1.5,
        home="r0",
        threads=(thread,),
        last_arrival_s=11.0,
        calls=2,
    )
    shown = session_json(program)
    assert shown["id"] == "run"
    assert shown["created_at"] == 10.0
    assert shown["calls_in_flight"] == 1
    assert shown["replicas"] == ["r0", "r1"]
    assert shown["threads"][0]["call"] == "c2"
    assert shown["last_call_completion"] is None
    assert "tenant" not in repr(shown)


@pytest.mark.parametrize(
    ("segment", "name"),
    [("a%2Fb", "a/b"), ("%C3%A9", "é"), ("%FF", "ÿ"), ("a+b", "a+b"), ("%2", "%2")],
)
def test_ids_are_decoded_once(segment: str, name: str) -> None:
    assert decoded_id(segment) == name


@pytest.mark.parametrize("name", ["", "x" * 257, "é" * 129])
def test_ids_out_of_bounds_are_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        checked_id(name)
    assert caught.value.status == 400


def test_256_bytes_are_an_id() -> None:
    assert checked_id("é" * 128) == "é" * 128
