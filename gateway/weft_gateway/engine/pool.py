"""Pools and reuses connections to replicas. One pool serves the whole process."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from weft_gateway.engine.connection import LOST, Connection, Piece
from weft_gateway.engine.errors import (
    ClientGone,
    ConnectFailed,
    ReplicaAnswerTooLarge,
    ReplicaClosed,
    ReplicaLost,
    ReplicaTimeout,
)

# Less than the 5 s after which uvicorn, and so vLLM, closes an idle connection: a request should
# not cross the close on the wire.
MAX_IDLE_S: Final = 3.0
MAX_ANSWER_BYTES: Final = 268_435_456


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits on a replica's response times, in seconds: until the connection, until the first body
    byte, and between bytes. lost_s: allowed silence of open calls once the replica's process seems
    to be gone. queued_s: until the first body byte, while the replica serves other calls.
    """

    connect_s: float
    first_byte_s: float
    idle_s: float
    lost_s: float = 5.0
    queued_s: float = 3600.0


class Upstream:
    """The connections to one replica. Idle ones form a stack: the most recently used is taken
    first, the others age until they are dropped.
    """

    def __init__(
        self,
        url: str,
        timeouts: Timeouts,
        context: ssl.SSLContext | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """`url`: http:// or https://, host, optional port and path prefix. max_answer_bytes: size
        limit of an answer that is read whole.
        """
        parts = urlsplit(url)
        self.timeouts = timeouts
        self.max_answer_bytes = max_answer_bytes
        self.prefix = parts.path.rstrip("/").encode()
        self.authority = parts.netloc.rpartition("@")[2]
        self.busy: set[Connection] = set()
        self._idle: list[Connection] = []
        # The loop time of the last complete answer.
        self._answered_at = -math.inf
        # The time since which the process seems to be gone, and the exchanges open at that time
        # with their deadlines.
        self._gone_since = math.inf
        self._marked: list[tuple[Connection, float]] = []
        self._host = parts.hostname or ""
        self._ssl = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._ssl else 80)

    def take_idle(self) -> Connection | None:
        """Return an idle connection that still seems open, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.still_open():
                self.busy.add(connection)
                return connection
        return None

    async def connect(self) -> Connection:
        """Open a connection. Raises ConnectFailed and then leaves the state unchanged."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.timeouts.connect_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._lost), self._host, self._port, ssl=self._ssl
                )
        except (OSError, TimeoutError) as error:
            raise ConnectFailed("The replica cannot be reached.") from error
        self.busy.add(connection)
        return connection

    def give(self, connection: Connection) -> None:
        """Return a connection after its exchange. It is kept if reusable, otherwise closed."""
        self.busy.discard(connection)
        good = connection.machine.complete and connection.machine.status < 400
        if connection.release():
            self._idle.append(connection)
            if good:
                self._answered_at = connection.idle_since

    def drop_idle(self, older_than: float = math.inf) -> None:
        """Close idle connections last used before loop time `older_than`."""
        kept = []
        for connection in self._idle:
            if connection.idle_since < older_than:
                connection.abort()
            else:
                kept.append(connection)
        self._idle = kept

    def close(self) -> None:
        """Close every connection. Waiting tasks receive ReplicaClosed."""
        self.drop_idle()
        for connection in tuple(self.busy):
            connection.fail(ReplicaClosed("The gateway is shutting down."))

    def seems_gone(self, now: float) -> None:
        """Record that no process listens at the address. Each arriving byte moves an exchange's
        deadline. An exchange with the same deadline `lost_s` later has been silent and is lost.
        """
        if self._gone_since == math.inf:
            self._gone_since = now
            self._marked = [(c, c.deadline) for c in self.busy if c.deadline < math.inf]

    def is_there(self) -> None:
        """Record that the process answers, or may only be late."""
        self._gone_since = math.inf
        self._marked = []

    def sweep(self, now: float) -> None:
        """Fail exchanges that are past their deadline or lost. Drop connections that were idle too
        long.
        """
        if now >= self._gone_since + self.timeouts.lost_s:
            for connection, deadline in self._marked:
                if connection in self.busy and connection.deadline == deadline:
                    connection.fail(ReplicaLost(LOST))
            # The next bad check marks the remaining exchanges.
            self.is_there()
        for connection in [c for c in self.busy if c.deadline < now]:
            if connection.deadline == connection.queued_to:
                connection.deadline = connection.queued_to = self._queued_to(connection)
            if connection.deadline < now:
                connection.fail(ReplicaTimeout("The replica did not answer in time."))
        if self._idle:
            self.drop_idle(now - MAX_IDLE_S)

    def _queued_to(self, connection: Connection) -> float:
        """Return the deadline of a call without a body byte. While the replica serves others, it
        stands in a queue: the silence of the replica counts, and not that of the call.
        """
        times = self.timeouts
        heard = [
            c.deadline - times.idle_s
            for c in self.busy
            if c.deadline != c.queued_to and c.deadline < math.inf
        ]
        until = max([self._answered_at, connection.sent_at, *heard]) + times.first_byte_s
        return min(until, connection.sent_at + max(times.queued_s, times.first_byte_s))

    def _lost(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)


class Exchange:
    """One request to one replica and its answer. `close` always frees the connection."""

    __slots__ = ("_cancelled", "_connection", "_end_by", "_upstream")

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._connection: Connection | None = None
        self._cancelled: Exception | None = None
        self._end_by = math.inf

    async def start(self, *request: Piece) -> None:
        """Send the pieces of a request and wait for status and headers. Raises ReplicaError.

        ConnectFailed means that the replica read no byte. In all other cases no other replica may
        receive the call: a request that crashes one engine would crash the next. If the replica had
        closed a reused connection before the request arrived, and the kernel proves that it read
        nothing (`weft_gateway.engine.kernel`), the request is sent once more to the same replica,
        over a new connection. If it reads nothing there either, the error is ConnectFailed, too.
        """
        upstream = self._upstream
        connection = upstream.take_idle()
        if connection is not None:
            try:
                self._send(connection, request)
                await connection.head()
                return
            except ReplicaClosed:
                if not connection.unread:
                    raise
            # The replica has probably closed its other idle connections too.
            upstream.give(connection)
            self._connection = None
            upstream.drop_idle()
        connection = await upstream.connect()
        self._send(connection, request)
        try:
            await connection.head()
        except ReplicaClosed as error:
            if not connection.unread:
                raise
            raise ConnectFailed("The replica closed its connections unread.") from error

    def _send(self, connection: Connection, request: Sequence[Piece]) -> None:
        self._connection = connection
        if self._cancelled is not None:
            raise self._cancelled
        timeouts = self._upstream.timeouts
        connection.send(request, timeouts.first_byte_s, timeouts.idle_s)

    @property
    def status(self) -> int:
        """The answer's status code. Valid after `start`."""
        assert self._connection is not None
        return self._connection.machine.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The answer's headers, names in lower case. Valid after `start`."""
        assert self._connection is not None
        return self._connection.machine.headers

    @property
    def complete(self) -> bool:
        """Whether the whole answer has arrived and has been read."""
        if self._connection is None:
            return False
        machine = self._connection.machine
        return machine.complete and not machine.buffered

    def read(self, most: int = 0) -> Awaitable[bytes]:
        """Wait for body bytes and return those that have arrived; b"" at the end of the answer.
        most: maximum number of bytes; 0: no limit. Raises ReplicaError.
        """
        connection = self._connection
        assert connection is not None
        if isinstance(self._cancelled, ClientGone) and not connection.machine.complete:
            raise self._cancelled  # The client is gone.
        return connection.read(most)

    async def read_all(self) -> bytes:
        """Return the whole body. Raises ReplicaError, and ReplicaAnswerTooLarge if the body exceeds
        the upstream's `max_answer_bytes`.
        """
        connection, limit = self._connection, self._upstream.max_answer_bytes
        assert connection is not None
        machine = connection.machine
        first = machine.take() if machine.complete else await connection.read()
        size = len(first)
        if machine.complete and not machine.buffered and size <= limit:
            return first
        parts = [first]
        while size <= limit and (part := await connection.read()):
            parts.append(part)
            size += len(part)
        if size > limit:
            raise ReplicaAnswerTooLarge(f"The replica's answer is larger than {limit} bytes.")
        return b"".join(parts)

    def expect_end_within(self, seconds: float) -> None:
        """Limit the rest of the answer to `seconds` from the first call of this method. Call it
        again after each read, since a read extends the deadline.
        """
        if self._end_by == math.inf:
            self._end_by = asyncio.get_running_loop().time() + seconds
        if self._connection is not None:
            self._connection.deadline = min(self._connection.deadline, self._end_by)

    def cancel(self, error: Exception) -> None:
        """Drop the connection at once. The waiting task receives `error`."""
        self._cancelled = error
        if self._connection is not None:
            self._connection.fail(error)

    def close(self) -> None:
        """Return the connection to the pool; it is dropped if the answer is incomplete."""
        connection, self._connection = self._connection, None
        # The traceback of an error that was raised refers to the call, which refers to this.
        self._cancelled = None
        if connection is not None:
            self._upstream.give(connection)


async def watch(upstreams: Callable[[], Iterable[Upstream]], timeouts: Timeouts) -> None:
    """Enforce the deadlines of all upstreams until cancelled. Errors are late by at most one tick:
    an eighth of the shortest timeout, between 20 ms and 1 s.
    """
    shortest = min(timeouts.first_byte_s, timeouts.idle_s, timeouts.lost_s)
    tick = min(1.0, max(0.02, shortest / 8))
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(tick)
        now = loop.time()
        for upstream in upstreams():
            upstream.sweep(now)
