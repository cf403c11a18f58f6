"""The kernel's information about real connections over loopback."""

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
    """Yield both ends of a TCP connection that has carried one exchange."""
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
    """Wait until `ours` is readable; return the bytes, or the number of the error."""
    assert select.select([ours], [], [], 20)[0]
    try:
        return ours.recv(100)
    except OSError as error:
        return error.errno or 0


Pair = tuple[socket.socket, socket.socket]


def test_idle_peer_is_quiet_until_bytes_arrive(pair: Pair) -> None:
    ours, theirs = pair
    peer = Peer(ours)
    assert peer.quiet()
    theirs.sendall(b"surplus")
    select.select([ours], [], [], 20)
    assert not peer.quiet()


@pytest.mark.parametrize("unread", [False, True])
def test_closed_peer_is_not_quiet(pair: Pair, unread: bool) -> None:
    ours, theirs = pair
    peer = Peer(ours)
    if unread:  # The close becomes a reset.
        ours.sendall(b"more")
        select.select([theirs], [], [], 20)
    theirs.close()
    select.select([ours], [], [], 20)
    assert not peer.quiet()


def test_request_after_the_close_was_provably_not_read(pair: Pair) -> None:
    ours, theirs = pair
    peer = Peer(ours)
    theirs.close()
    select.select([ours], [], [], 20)
    ours.sendall(REQUEST)  # The same as a FIN that arrives just after this.
    assert ended(ours) == b""
    assert peer.read_nothing(len(REQUEST))


@pytest.mark.parametrize("read", [1, len(REQUEST)])
def test_partly_read_request_is_not_proven_unread(pair: Pair, read: int) -> None:
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
    else:  # A reset instead of a FIN: no proof is asked for.
        assert got == errno.ECONNRESET


def test_unread_request_ends_in_a_reset(pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(REQUEST)
    select.select([theirs], [], [], 20)
    theirs.close()
    assert ended(ours) == errno.ECONNRESET


def test_unsent_request_was_not_read(pair: Pair) -> None:
    assert Peer(pair[0]).read_nothing(0)


def test_keepalive_probes_are_enabled(pair: Pair) -> None:
    Peer(pair[0])
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S
