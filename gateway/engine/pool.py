"""Connections to replicas, kept and reused. One pool serves the whole process."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gateway.engine.connection import Connection
from gateway.engine.errors import ConnectFailed, ReplicaClosed, ReplicaTimeout

# Less than the 5 s after which uvicorn, and so vLLM, closes an idle connection: a request should
# not meet the close on its way.
MAX_IDLE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a replica may take: to connect, to its first body byte, between bytes. Seconds."""

    connect_s: float
    first_byte_s: float
    idle_s: float


class Upstream:
    """The connections to one replica. The idle ones form a stack: the warmest is used first, the
    others age until they are dropped."""

    def __init__(self, url: str, timeouts: Timeouts, context: ssl.SSLContext | None = None) -> None:
        """`url`: http:// or https://, host, optional port and path prefix."""
        parts = urlsplit(url)
        self.timeouts = timeouts
        self.prefix = parts.path.rstrip("/")
        self.authority = parts.netloc.rpartition("@")[2]
        self.busy: set[Connection] = set()
        self._idle: list[Connection] = []
        self._host = parts.hostname or ""
        self._ssl = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._ssl else 80)

    def take_idle(self) -> Connection | None:
        """An idle connection that still looks open, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.still_open():
                self.busy.add(connection)
                return connection
        return None

    async def connect(self) -> Connection:
        """A new connection. Raises ConnectFailed; then nothing has changed."""
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
        """Return a connection after its exchange: kept if it can be reused, else closed."""
        self.busy.discard(connection)
        if connection.release():
            self._idle.append(connection)

    def drop_idle(self, older_than: float = math.inf) -> None:
        """Close the idle connections last used before loop time `older_than`."""
        kept = []
        for connection in self._idle:
            if connection.idle_since < older_than:
                connection.abort()
            else:
                kept.append(connection)
        self._idle = kept

    def close(self) -> None:
        """Close every connection; whoever waits on one gets ReplicaClosed."""
        self.drop_idle()
        for connection in tuple(self.busy):
            connection.fail(ReplicaClosed("The gateway is shutting down."))

    def sweep(self, now: float) -> None:
        """Fail the exchanges whose deadline has passed, drop connections idle for too long."""
        for connection in [c for c in self.busy if c.deadline < now]:
            connection.fail(ReplicaTimeout("The replica did not answer in time."))
        if self._idle:
            self.drop_idle(now - MAX_IDLE_S)

    def _lost(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)


class Exchange:
    """One request to one replica and its answer. `close` always frees what it holds."""

    __slots__ = ("_cancelled", "_connection", "_upstream")

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._connection: Connection | None = None
        self._cancelled: Exception | None = None

    async def start(self, head: bytes, body: bytes) -> None:
        """Send the request and wait for status and headers. Raises ReplicaError.

        ConnectFailed means that no byte was sent, and only then may another replica get the call.
        Once bytes were written they are not written again, because a request that crashes one
        engine would crash the next. The one exception is a kept connection that the replica had
        closed before the request came: when the kernel proves that it read nothing
        (`gateway.engine.kernel`), the request is sent once more, to the same replica.
        """
        upstream = self._upstream
        connection = upstream.take_idle()
        if connection is not None:
            try:
                await self._send(connection, head, body)
                return
            except ReplicaClosed:
                if not connection.unread:
                    raise
            # What one kept connection suffered, its neighbours are likely to have suffered too.
            upstream.give(connection)
            self._connection = None
            upstream.drop_idle()
            try:
                connection = await upstream.connect()
            except ConnectFailed as error:
                raise ReplicaClosed(
                    "The replica closed its connections and accepts no new ones."
                ) from error
        else:
            connection = await upstream.connect()
        await self._send(connection, head, body)

    async def _send(self, connection: Connection, head: bytes, body: bytes) -> None:
        self._connection = connection
        if self._cancelled is not None:
            raise self._cancelled
        timeouts = self._upstream.timeouts
        connection.send(head, body, timeouts.first_byte_s, timeouts.idle_s)
        await connection.head()

    @property
    def status(self) -> int:
        """The answer's status code, after `start`."""
        assert self._connection is not None
        return self._connection.machine.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The answer's headers, names in lower case, after `start`."""
        assert self._connection is not None
        return self._connection.machine.headers

    @property
    def complete(self) -> bool:
        """Whether the whole answer has arrived."""
        return self._connection is not None and self._connection.machine.complete

    async def read(self) -> bytes:
        """What has arrived of the body, waiting for some; b"" at its end. Raises ReplicaError."""
        assert self._connection is not None
        return await self._connection.read()

    async def read_all(self) -> bytes:
        """The whole body. Raises ReplicaError."""
        assert self._connection is not None
        first = await self._connection.read()
        if self._connection.machine.complete and not self._connection.machine.buffered:
            return first
        parts = [first]
        while part := await self._connection.read():
            parts.append(part)
        return b"".join(parts)

    def expect_end_within(self, seconds: float) -> None:
        """Allow the rest of the answer no more than `seconds` of silence."""
        if self._connection is not None:
            loop = asyncio.get_running_loop()
            self._connection.deadline = min(self._connection.deadline, loop.time() + seconds)

    def cancel(self, error: Exception) -> None:
        """Drop the connection now; whoever waits on this exchange gets `error`."""
        self._cancelled = error
        if self._connection is not None:
            self._connection.fail(error)

    def close(self) -> None:
        """Give the connection back, or drop it where the answer is not complete."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._upstream.give(connection)


async def watch(upstreams: Iterable[Upstream], timeouts: Timeouts) -> None:
    """Enforce the deadlines of `upstreams` until cancelled. An error is late by one tick at most:
    an eighth of the shortest timeout, between 20 ms and 1 s."""
    tick = min(1.0, max(0.02, min(timeouts.first_byte_s, timeouts.idle_s) / 8))
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(tick)
        now = loop.time()
        for upstream in upstreams:
            upstream.sweep(now)
