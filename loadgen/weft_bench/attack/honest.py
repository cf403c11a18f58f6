"""`python -m weft_bench.attack.honest URL`: a client that makes small calls at fixed times.

The schedule does not wait for answers, and latency counts from the scheduled time: if the gateway
blocks, the calls that become due meanwhile are late too. Every second call uses a new connection,
like a client's first call. If the gateway has closed a kept connection, the call is repeated once,
as HTTP clients do. Prints one JSON object: the latency of each call in milliseconds, and the number
of failures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, Final
from urllib.parse import urlsplit

from weft_bench.drive.client import Connection
from weft_bench.drive.load import make_request

# A call that takes longer has failed.
TIMEOUT_S: Final = 30.0
_KEY: Final = "honest"


async def play(url: str, model: str, seconds: float, every_s: float) -> dict[str, Any]:
    """Make one call every `every_s` seconds for `seconds`. Returns the latencies and errors."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    request = make_request(url, model, False, _KEY).replace(b"EMPTY", _KEY.encode())
    loop = asyncio.get_running_loop()
    kept: list[Connection] = []
    latencies: list[float] = []
    errors = 0

    async def ask(connection: Connection | None) -> tuple[int, Connection]:
        if connection is None:
            _, connection = await loop.create_connection(Connection, host, port)
        return await connection.ask(request), connection

    async def call(number: int, due: float) -> None:
        nonlocal errors
        await asyncio.sleep(due - loop.time())
        use = kept.pop() if kept and number % 2 == 0 else None
        status = 0
        try:
            async with asyncio.timeout_at(due + TIMEOUT_S):
                status, used = await ask(use)
                if not status and use is not None:
                    status, used = await ask(None)
                if number % 2:
                    used.close()
                else:
                    kept.append(used)
        except (OSError, TimeoutError):
            pass
        latencies.append(1000 * (loop.time() - due))
        errors += status != 200

    begun = loop.time()
    count = max(1, int(seconds / every_s))
    await asyncio.gather(*(call(number, begun + number * every_s) for number in range(count)))
    for connection in kept:
        connection.close()
    return {"latencies_ms": latencies, "errors": errors}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="weft_bench.attack.honest", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--every", type=float, default=0.02, help="seconds from call to call")
    args = parser.parse_args()
    print(json.dumps(asyncio.run(play(args.url, args.model, args.seconds, args.every))))


if __name__ == "__main__":
    main()
