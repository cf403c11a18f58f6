"""`python -m weft_bench.fake`: run one mock engine until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal

import uvloop

from weft_bench.fake.server import Connection, Engine


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="weft_bench.fake", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for any free port, which is printed")
    parser.add_argument("--model", default="mock", help="name of the model")
    parser.add_argument("--chunks", type=int, default=50, help="number of words in an answer")
    parser.add_argument("--plugin", action="store_true", help="report an engine with Weft's plugin")
    return parser.parse_args()


async def serve(engine: Engine, host: str, port: int) -> None:
    """Listen until SIGINT or SIGTERM. The address is printed once the port is bound."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Connection(engine), host, port, backlog=1024)
    bound = server.sockets[0].getsockname()
    print(f"mock engine on http://{bound[0]}:{bound[1]}", flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    """Run the command."""
    args = _arguments()
    uvloop.run(serve(Engine(args.model, args.chunks, args.plugin), args.host, args.port))


if __name__ == "__main__":
    main()
