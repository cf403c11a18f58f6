"""The response parser: scripted bytes in, responses out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.engine.errors import ReplicaClosed, ReplicaGarbage
from weft_gateway.engine.response import MAX_HEAD_BYTES, ResponseMachine

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"


@pytest.mark.parametrize("script", [PLAIN, CHUNKED], ids=["length", "chunked"])
@given(cuts=st.sets(st.integers(0, len(CHUNKED)), max_size=8))
def test_response_does_not_depend_on_the_chunks(script: bytes, cuts: set[int]) -> None:
    bounds = [0, *sorted(cuts), len(script)]
    machine = ResponseMachine()
    for start, end in pairwise(bounds):
        if script[start:end]:
            machine.feed(script[start:end])
    assert (machine.status, machine.complete, machine.keep_alive) == (200, True, True)
    assert machine.take() == b"hello"
    assert machine.buffered == 0


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 50))
def test_body_is_read_in_bounded_pieces(sizes: list[int], most: int) -> None:
    machine = ResponseMachine()
    body = bytes(range(256)) * 5
    machine.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    at = 0
    for size in sizes:
        machine.feed(b"%x\r\n%b\r\n" % (size, body[at : at + size]))
        at += size
    taken = []
    while machine.buffered:
        taken.append(machine.take(most))
    assert b"".join(taken) == body[:at]
    assert all(0 < len(piece) <= most for piece in taken)
    assert machine.take(most) == b""


def test_headers_have_lower_case_names_and_exact_values() -> None:
    machine = ResponseMachine()
    machine.feed(PLAIN)
    assert (b"x-a", b"b") in machine.headers


def test_machine_reads_consecutive_responses() -> None:
    machine = ResponseMachine()
    for script in (PLAIN, CHUNKED, PLAIN):
        machine.expect()
        assert not machine.started
        machine.feed(script)
        assert machine.take() == b"hello"


def test_body_may_end_with_the_connection() -> None:
    machine = ResponseMachine()
    machine.feed(b"HTTP/1.1 200 OK\r\n\r\nhel")
    machine.feed(b"lo")
    assert not machine.complete
    machine.feed_eof()
    assert machine.complete
    assert not machine.keep_alive
    assert machine.take() == b"hello"


@pytest.mark.parametrize(
    "script",
    [b"", b"HTTP/1.1 200 OK\r\nContent-", PLAIN[:-1], CHUNKED[:-5]],
    ids=["nothing", "in the head", "in a counted body", "before the last chunk"],
)
def test_truncated_response_is_an_error(script: bytes) -> None:
    machine = ResponseMachine()
    if script:
        machine.feed(script)
    with pytest.raises(ReplicaClosed):
        machine.feed_eof()


@pytest.mark.parametrize(
    "script",
    [
        b"\x00\x01\x02 garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nx",
    ],
    ids=["noise", "another protocol", "a chunk without a size", "an upgrade"],
)
def test_invalid_http_is_garbage(script: bytes) -> None:
    with pytest.raises(ReplicaGarbage):
        ResponseMachine().feed(script)


def test_endless_headers_are_garbage() -> None:
    machine = ResponseMachine()
    machine.feed(b"HTTP/1.1 200 OK\r\n")
    filler = b"x-filler: " + b"y" * 100 + b"\r\n"
    for _ in range(MAX_HEAD_BYTES // len(filler) - 1):
        machine.feed(filler)
    with pytest.raises(ReplicaGarbage):
        machine.feed(filler * 2)


def test_informational_responses_are_skipped() -> None:
    machine = ResponseMachine()
    machine.feed(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert not machine.head_complete
    machine.feed(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + PLAIN)
    assert machine.status == 200
    assert machine.complete
    assert b"link" not in dict(machine.headers)


def test_connection_close_is_not_kept_alive() -> None:
    machine = ResponseMachine()
    machine.feed(PLAIN.replace(b"X-A: b", b"Connection: close"))
    assert machine.complete
    assert not machine.keep_alive


def test_extra_bytes_after_the_response_end_keep_alive() -> None:
    machine = ResponseMachine()
    machine.feed(PLAIN + PLAIN)
    assert machine.take() == b"hello"
    assert not machine.keep_alive


def test_trailers_are_not_headers() -> None:
    machine = ResponseMachine()
    machine.feed(CHUNKED[:-2] + b"X-Trailer: t\r\n\r\n")
    assert machine.complete
    assert b"x-trailer" not in dict(machine.headers)


def test_empty_response_is_complete_at_its_head() -> None:
    machine = ResponseMachine()
    machine.feed(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert machine.complete
    assert machine.take() == b""


def test_an_endless_trailer_is_an_error() -> None:
    machine = ResponseMachine()
    machine.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na: ")
    machine.feed(b"b" * MAX_HEAD_BYTES)
    with pytest.raises(ReplicaGarbage):
        machine.feed(b"b")
