"""What the kernel knows about a connection: is the peer there, and did it read anything.

A request may be sent a second time only if the first replica provably read none of it. "The
connection closed a few milliseconds after the write" is no proof: a process that crashes on the
request looks the same. The kernel has the proof. A FIN carries the number of the next byte that the
peer's kernel expects, and a kernel sends a FIN only when the process has read everything that had
arrived; with unread bytes it sends a reset instead. So, when the end of a connection arrives as a
FIN and the peer has acknowledged none of the request, the peer had closed before the request came.

This holds on Linux and over plain TCP. Elsewhere there is no proof, and nothing is sent again.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import sys
import termios
from typing import Any, Final

# A host that vanished without a word is found after 15 + 3 * 5 seconds. The peer's kernel answers
# these probes, so a process that is merely busy loses nothing.
KEEPALIVE_IDLE_S: Final = 15
KEEPALIVE_EVERY_S: Final = 5
KEEPALIVE_PROBES: Final = 3

_LINUX: Final = sys.platform == "linux"
_INT: Final = struct.Struct("i")


class Peer:
    """The other end of one connection. Made once per connection; `quiet` costs one system call."""

    __slots__ = ("_arrived", "_fd")

    def __init__(self, sock: Any) -> None:
        """sock: the transport's socket, which must stay open as long as this is used."""
        self._fd: int = sock.fileno()
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        self._arrived = poll.poll
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if _LINUX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)

    def quiet(self) -> bool:
        """Whether nothing has arrived: no byte, no end, no error. On an idle connection anything
        else says that it cannot be used, also before the event loop has seen it."""
        return not self._arrived(0)

    def read_nothing(self, written: int) -> bool:
        """Whether the peer has acknowledged none of the last `written` bytes.

        To be asked when the end of the connection has arrived as a FIN: see above. `written` is
        what the kernel took, without what is still in the transport's buffer.
        """
        if not _LINUX:
            return False
        try:
            raw = fcntl.ioctl(self._fd, termios.TIOCOUTQ, bytes(_INT.size))
        except OSError:
            return False
        # Sent and not acknowledged. More than `written` where an earlier byte is among them.
        unacknowledged: int = _INT.unpack(raw)[0]
        return unacknowledged >= written
