"""One connection to a replica: the boundary between bytes and the event loop.

A connection carries one request at a time. It reads into a `ResponseMachine`, wakes the one task
that waits, and pauses reading while that task is slow. Deadlines are plain numbers that the pool's
watchdog compares: a timer per read would cost more than the read.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable, Sequence
from typing import Final, cast

from weft_gateway.engine.errors import ReplicaClosed, ReplicaError, ReplicaLost
from weft_gateway.engine.kernel import Peer
from weft_gateway.engine.response import ResponseMachine

# Reading pauses above the high mark and resumes below the low mark.
HIGH_WATER_BYTES: Final = 262_144
LOW_WATER_BYTES: Final = 65_536

_CLOSED: Final = "The replica closed the connection before its answer was complete."
LOST: Final = "The replica disappeared without closing its connection."
# The kernel's errors for unanswered keepalive probes.
_GONE: Final = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)

# A part of a request. A view avoids a copy of a large body.
Piece = bytes | memoryview


class Connection(asyncio.Protocol):
    """A connection and the response it waits for, if any.

    deadline: loop time after which silence is an error; infinite if nothing is expected. queued_to:
    the deadline while no body byte has arrived. sent_at: loop time of the request. unread: the
    connection has ended, and the replica provably read no byte of the last request.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Connection], None]
    ) -> None:
        self.machine = ResponseMachine()
        self.deadline = math.inf
        self.queued_to = 0.0
        self.sent_at = 0.0
        self.idle_since = 0.0
        self.unread = False
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self._encrypted = False
        self._written = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._busy = False
        self._ended = False
        self._paused = False
        self._idle_s = math.inf

    @property
    def usable(self) -> bool:
        """Whether the connection is open, according to the event loop."""
        return self._transport is not None and not self._transport.is_closing()

    def still_open(self) -> bool:
        """Whether an idle connection can carry another request, according to the kernel, which
        detects a close before the event loop does.
        """
        transport, peer = self._transport, self._peer
        if transport is None or transport.is_closing():
            return False
        return peer is None or peer.quiet()

    def send(self, request: Sequence[Piece], first_byte_s: float, idle_s: float) -> None:
        """Send the pieces of a request. The first body byte may take `first_byte_s` seconds,
        because an engine sends the head of a stream at once and then queues the call. Each later
        byte may take `idle_s`.
        """
        assert self._transport is not None
        self.machine.expect()
        self._error = None
        self._busy = True
        self._idle_s = idle_s
        self.sent_at = self._loop.time()
        self.deadline = self.queued_to = self.sent_at + first_byte_s
        self._written = size = sum(map(len, request))
        # Joining makes a small request one system call. A large one is not copied.
        if size < 65_536:
            self._transport.write(b"".join(request))
        else:
            self._transport.writelines(request)

    async def head(self) -> None:
        """Wait for status and headers. Raises ReplicaError or the error passed to `fail`."""
        while not self.machine.head_complete:
            await self._arrival()

    async def read(self, most: int = 0) -> bytes:
        """Wait for body bytes and return those that have arrived; b"" at the end of the answer.
        most: maximum number of bytes; 0: no limit.

        Bytes that arrived before an error are returned before the error is raised.
        """
        machine = self.machine
        while True:
            if machine.buffered:
                data = machine.take(most)
                if self._paused and machine.buffered <= LOW_WATER_BYTES:
                    self._resume()
                return data
            if machine.complete:
                return b""
            await self._arrival()

    def release(self) -> bool:
        """End the exchange. Return True if the connection is reusable; otherwise it is closed."""
        self._busy = False
        # The traceback of an error that was raised refers to the call and to this.
        self._error = None
        self.deadline = math.inf
        if self.machine.complete and self.machine.keep_alive and self.usable:
            if self._paused:
                self._resume()
                self.deadline = math.inf
            self.idle_since = self._loop.time()
            return True
        self.abort()
        self._end()
        return False

    def fail(self, error: Exception) -> None:
        """End the exchange: the waiting task raises `error`. Drop the connection at once, so that
        the engine detects it and aborts the call.
        """
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    def abort(self) -> None:
        """Close the connection at once, without flushing."""
        self.deadline = math.inf
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._peer = Peer(sock)
        self._encrypted = transport.get_extra_info("ssl_object") is not None

    def data_received(self, data: bytes) -> None:
        if not self._busy:  # No request is open: the next answer could be mistaken for this one.
            self.abort()
            return
        machine = self.machine
        try:
            machine.feed(data)
        except ReplicaError as error:
            self.fail(error)
            return
        if machine.buffered > HIGH_WATER_BYTES and not self._paused and not machine.complete:
            self._pause()
        elif machine.buffered:
            self.deadline = self._loop.time() + self._idle_s
        if machine.head_complete:
            self._wake()

    def eof_received(self) -> None:
        # Only a FIN arrives here, not a reset. The transport closes itself afterwards.
        if self._busy and not self.machine.started and self._peer and not self._encrypted:
            assert self._transport is not None
            written = self._written - self._transport.get_write_buffer_size()
            self.unread = self._peer.read_nothing(written)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(self)
        self._transport = self._peer = None
        if not self._busy:
            self._end()
            return
        if self._error is not None:
            return
        if exc is not None and not self.machine.complete:
            gone = isinstance(exc, OSError) and exc.errno in _GONE
            self.fail(ReplicaLost(LOST) if gone else ReplicaClosed(_CLOSED))
            return
        try:
            self.machine.feed_eof()
        except ReplicaError as error:
            self.fail(error)
        else:
            self._wake()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self.machine.drop()

    # The single waiter.

    def _arrival(self) -> asyncio.Future[None]:
        """Return a future that completes when data arrives or the connection ends."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        return self._waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _pause(self) -> None:
        # While reading is paused, the replica's silence is caused by the gateway.
        self._paused = True
        self.deadline = math.inf
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        self._paused = False
        self.deadline = self._loop.time() + self._idle_s
        if self._transport is not None:
            self._transport.resume_reading()
