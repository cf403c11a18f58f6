"""The figures of 0001: what one call costs through each HTTP client, against one local server.

    python docs/internals/decisions/compare_clients.py

Each client sends plain requests, eight at once over kept connections, from one process and one
event loop (uvloop) to a server that answers from memory in another process. Prints calls a second
and processor time a call in the client's process: the second is what a gateway pays for each call.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe

import aiohttp
import httptools
import httpx
import uvloop
from weft_gateway.engine.pool import Exchange, Timeouts, Upstream

CALLS, AT_ONCE = 4000, 8
BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 300 + b'"}]}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n" + b"y" * 500
)


class Server(asyncio.Protocol):
    """Answers every request from memory."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(ANSWER)  # type: ignore[attr-defined]


def serve(pipe: Pipe) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Server, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


async def measure(name: str, call: Callable[[], Awaitable[int]]) -> None:
    for _ in range(200):
        assert await call() == 500
    left = CALLS

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    used, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    took, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    print(f"| {name} | {CALLS / took:,.0f} | {cpu / CALLS * 1e6:.0f} |")


async def compare(port: int) -> None:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    headers = {"content-type": "application/json"}
    print("| client | calls/s | processor time a call, microseconds |\n|---|---|---|")

    async with httpx.AsyncClient(trust_env=False) as client:

        async def with_httpx() -> int:
            return len((await client.post(url, content=BODY, headers=headers)).content)

        await measure("httpx", with_httpx)

    async with aiohttp.ClientSession() as session:

        async def with_aiohttp() -> int:
            async with session.post(url, data=BODY, headers=headers) as answer:
                return len(await answer.read())

        await measure("aiohttp", with_aiohttp)

    upstream = Upstream(f"http://127.0.0.1:{port}", Timeouts(5, 60, 60))
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(BODY)
    )

    async def with_ours() -> int:
        exchange = Exchange(upstream)
        try:
            await exchange.start(head, BODY)
            return len(await exchange.read_all())
        finally:
            exchange.close()

    await measure("`weft_gateway.engine.pool`", with_ours)
    upstream.close()


def main() -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        uvloop.run(compare(here.recv()))
    finally:
        server.kill()
        server.join()


if __name__ == "__main__":
    main()
