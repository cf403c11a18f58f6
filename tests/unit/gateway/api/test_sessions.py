"""Sessions as JSON, and the ids in their paths."""

import pytest
from weft_gateway.api.sessions import path_id, program_key, query_id, session_json
from weft_gateway.model import Program, ProgramKey, Thread
from weft_gateway.programs.ids import IdentityError


def test_session_shows_all_fields_of_its_program() -> None:
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
    [("a%2Fb", "a/b"), ("%C3%A9", "é"), ("%25FF", "%FF"), ("a+b", "a+b"), ("%2", "%2")],
)
def test_path_ids_are_decoded_once(segment: str, name: str) -> None:
    assert path_id(segment) == name


@pytest.mark.parametrize(
    ("query", "name"),
    [
        (b"id=a%2Fb", "a/b"),
        (b"id=%C3%A9", "é"),
        ("id=é".encode(), "é"),
        (b"id=a+b", "a b"),
        (b"id=a&id=b", "b"),
        (b"id=", ""),
        (b"other=a", ""),
    ],
)
def test_query_ids_are_decoded_from_bytes(query: bytes, name: str) -> None:
    assert query_id(query, "id") == name


@pytest.mark.parametrize("query", [b"id=%FF", b"id=\xff", b"id=a%ED%A0%80"])
def test_invalid_utf8_is_no_id(query: bytes) -> None:
    with pytest.raises(IdentityError, match="id must be text"):
        query_id(query, "id")
    with pytest.raises(IdentityError):
        path_id("%FF")


def test_empty_id_is_refused() -> None:
    with pytest.raises(IdentityError, match="session_id must not be empty"):
        program_key("tenant", "")
    assert program_key("tenant", "s") == ProgramKey("tenant", "s")
