"""The kernel's knowledge of a connection: whether the peer is present and has read anything.

A request may be sent a second time only if the first replica provably read none of it. A close a
few milliseconds after the write is no proof: a process that crashes on the request looks the same.
The kernel has the proof. A FIN carries the number of the next byte that the peer's kernel expects,
and a kernel sends a FIN only when the process has read everything that had arrived; with unread
bytes it sends a reset instead. So if a connection ends with a FIN and the peer has acknowledged
none of the request, the peer had closed before the request arrived.

This holds on Linux over plain TCP. Elsewhere no proof exists, and requests are never repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import sys
import termios
from typing import Any, Final

# A host that disappeared silently is detected after 15 + 3 * 5 seconds. The peer's kernel answers
# these probes, so a busy process is not affected.
KEEPALIVE_IDLE_S: Final = 15
KEEPALIVE_EVERY_S: Final = 5
KEEPALIVE_PROBES: Final = 3

# Buffers of one connection. The kernel would grow them to several megabytes, also for a peer that
# does not read. It doubles these values for its own overhead.
_TO_CLIENT: Final = 262_144
_FROM_REPLICA: Final = 262_144

_LINUX: Final = sys.platform == "linux"
_INT: Final = struct.Struct("i")
_LINGER_0: Final = struct.pack("ii", 1, 0)


def bound_sending(transport: asyncio.BaseTransport) -> None:
    """Limit what the kernel keeps for a client that does not read."""
    _set(transport, socket.SO_SNDBUF, _TO_CLIENT)


def reset(transport: asyncio.WriteTransport) -> None:
    """End a connection at once, and discard what its peer has not read. After a close, the kernel
    would keep these bytes for minutes.
    """
    _set(transport, socket.SO_LINGER, _LINGER_0)
    transport.abort()


def _set(transport: asyncio.BaseTransport, option: int, value: int | bytes) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, value)


class Peer:
    """The peer of one connection. Created once per connection; `quiet` costs one system call."""

    __slots__ = ("_arrived", "_fd")

    def __init__(self, sock: Any) -> None:
        """sock: the transport's socket. It must stay open while this object is in use."""
        self._fd: int = sock.fileno()
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        self._arrived = poll.poll
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _FROM_REPLICA)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if _LINUX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)

    def quiet(self) -> bool:
        """Whether nothing has arrived: no byte, no end, no error. Otherwise an idle connection is
        unusable, even if the event loop has not noticed yet.
        """
        return not self._arrived(0)

    def read_nothing(self, written: int) -> bool:
        """Whether the peer has acknowledged none of the last `written` bytes.

        Call this when the end of the connection has arrived as a FIN (see above). `written`: bytes
        passed to the kernel, without those in the transport's buffer.
        """
        if not _LINUX:
            return False
        try:
            raw = fcntl.ioctl(self._fd, termios.TIOCOUTQ, bytes(_INT.size))
        except OSError:
            return False
        # Sent but not acknowledged. Exceeds `written` if it includes earlier bytes.
        unacknowledged: int = _INT.unpack(raw)[0]
        return unacknowledged >= written
