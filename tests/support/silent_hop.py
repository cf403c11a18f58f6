"""A TCP hop that ends a connection whose server is silent, as proxies and load balancers do.

python silent_hop.py PORT SERVER_PORT SECONDS
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

# Times that it looks during the allowed silence.
_STEPS = 20


@dataclass
class Hop:
    """A running hop. cut: how many connections it has ended."""

    url: str = ""
    cut: int = 0


@contextlib.asynccontextmanager
async def silent_hop(server_port: int, seconds: float, port: int = 0) -> AsyncIterator[Hop]:
    """Run a hop on loopback. seconds: allowed silence of the server. port: 0 for a free one."""
    hop = Hop()

    async def upwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", server_port)
        quiet = 0

        async def watch() -> None:
            nonlocal quiet
            # Steps, so that a busy event loop, which this server may share, counts only once.
            while quiet < _STEPS:
                await asyncio.sleep(seconds / _STEPS)
                quiet += 1
            hop.cut += 1
            writer.transport.abort()
            to_server.close()

        tasks = [asyncio.create_task(watch()), asyncio.create_task(upwards(reader, to_server))]
        with contextlib.suppress(ConnectionError):
            while data := await from_server.read(65536):
                quiet = 0
                writer.write(data)
                await writer.drain()
        for task in tasks:
            task.cancel()
        to_server.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    hop.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield hop
    finally:
        server.close()


async def _main(port: int, server_port: int, seconds: float) -> None:
    async with silent_hop(server_port, seconds, port) as hop:
        cut = 0
        while True:
            await asyncio.sleep(1)
            if hop.cut > cut:
                cut = hop.cut
                print(f"{cut} connections ended", flush=True)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
