"""What the kernel tells of real connections over loopback."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import sys
from collections.abc import Iterator

import pytest
from weft_gateway.engine.kernel import KEEPALIVE_IDLE_S, Peer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the proof is Linux's")

REQUEST = b"x" * 5000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection that has carried an exchange already."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with contextlib.closing(ours), contextlib.closing(theirs):
        ours.sendall(b"request")
        assert theirs.recv(100) == b"request"
        theirs.sendall(b"answer")
        assert ours.recv(100) == b"answer"
        yield ours, theirs


def ended(ours: socket.socket) -> bytes | int:
    """What reading gives once something has come: the bytes, or the number of the error."""
    assert select.select([ours], [], [], 20)[0]
    try:
        return ours.recv(100)
    except OSError as error:
        return error.errno or 0


Pair = tuple[socket.socket, socket.socket]


def test_an_idle_peer_is_quiet_until_anything_comes(pair: Pair) -> None:
    ours, theirs = pair
    peer = Peer(ours)
    assert peer.quiet()
    theirs.sendall(b"surplus")
    select.select([ours], [], [], 20)
    assert not peer.quiet()


@pytest.mark.parametrize("unread", [False, True])
def test_a_peer_that_has_closed_is_not_quiet(pair: Pair, unread: bool) -> None:
    ours, theirs = pair
    peer = Peer(ours)
    if unread:  # Then it is a reset.
        ours.sendall(b"more")
        select.select([theirs], [], [], 20)
    theirs.close()
    select.select([ours], [], [], 20)
    assert not peer.quiet()


def test_a_request_that_meets_the_close_was_provably_not_read(pair: Pair) -> None:
    ours, theirs = pair
    peer = Peer(ours)
    theirs.close()
    select.select([ours], [], [], 20)
    ours.sendall(REQUEST)  # As if the FIN had come just after this.
    assert ended(ours) == b""
    assert peer.read_nothing(len(REQUEST))


@pytest.mark.parametrize("read", [1, len(REQUEST)])
def test_a_request_of_which_a_byte_was_read_has_no_such_proof(pair: Pair, read: int) -> None:
    ours, theirs = pair
    peer = Peer(ours)
    ours.sendall(REQUEST)
    left = read
    while left:
        left -= len(theirs.recv(left))
    theirs.close()
    got = ended(ours)
    if read == len(REQUEST):
        assert (got, peer.read_nothing(len(REQUEST))) == (b"", False)
    else:  # No FIN, so the question does not come up.
        assert got == errno.ECONNRESET


def test_a_request_that_lies_unread_has_no_proof_either(pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(REQUEST)
    select.select([theirs], [], [], 20)
    theirs.close()
    assert ended(ours) == errno.ECONNRESET


def test_what_never_left_the_transport_was_not_read(pair: Pair) -> None:
    assert Peer(pair[0]).read_nothing(0)


def test_hosts_that_vanish_are_noticed(pair: Pair) -> None:
    Peer(pair[0])
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S
