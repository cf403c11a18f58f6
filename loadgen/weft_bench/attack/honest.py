"""`python -m weft_bench.attack.honest URL`: a client that makes a small call now and then.

Every second call goes over a new connection, as a client's first one does. A call over a kept
connection that the gateway has closed is made again, once, as HTTP clients do. Prints one JSON
object: the latency of each call, milliseconds, and how many failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any, Final
from urllib.parse import urlsplit

from weft_bench.drive.load import Connection, make_request

# A call that takes longer has failed.
TIMEOUT_S: Final = 30.0
_KEY: Final = "honest"


async def play(url: str, model: str, seconds: float, every_s: float) -> dict[str, Any]:
    """Calls for so long, one after the other, each begun `every_s` seconds after the last or as
    soon as that has ended. See above for the result."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    request = make_request(url, model, False, _KEY).replace(b"EMPTY", _KEY.encode())
    kept: Connection | None = None
    latencies: list[float] = []
    errors = 0

    async def ask(connection: Connection | None) -> tuple[int, Connection]:
        if connection is None:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, host, port)
        return await connection.ask(request), connection

    end = time.perf_counter() + seconds
    number = 0
    while (begun := time.perf_counter()) < end:
        fresh = number % 2 == 1
        number += 1
        status = 0
        try:
            async with asyncio.timeout(TIMEOUT_S):
                use = None if fresh or kept is None or not kept.usable else kept
                status, used = await ask(use)
                if not status and use is not None:
                    status, used = await ask(None)
                if fresh:
                    used.close()
                else:
                    kept = used
        except (OSError, TimeoutError):
            pass
        latencies.append(1000 * (time.perf_counter() - begun))
        errors += status != 200
        await asyncio.sleep(max(0.0, begun + every_s - time.perf_counter()))
    if kept is not None:
        kept.close()
    return {"latencies_ms": latencies, "errors": errors}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="weft_bench.attack.honest", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--every", type=float, default=0.02, help="seconds from call to call")
    args = parser.parse_args()
    print(json.dumps(asyncio.run(play(args.url, args.model, args.seconds, args.every))))


if __name__ == "__main__":
    main()
