"""`python -m weft_bench.overhead.play`: plays one conversation and prints what its calls cost.

Runs as a separate process, so that it shares no interpreter with the measured program. Bodies are
prepared before the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Final
from urllib.parse import urlsplit

import uvloop

from weft_bench.drive.client import Connection
from weft_bench.overhead.conversations import Conversation
from weft_bench.stack.processes import cpu_seconds
from weft_bench.stats import percentile

# Calls before the measured ones: they fill caches, and are those that begin the conversation.
_WARM: Final = 3


async def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="weft_bench.overhead.play")
    parser.add_argument("url")
    parser.add_argument("--pid", type=int, default=0, help="whose processor time counts")
    parser.add_argument("--size", type=int, required=True, help="bytes of the first body")
    parser.add_argument("--calls", type=int, required=True, help="measured calls")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--growing", action="store_true", help="one conversation, else one a call")
    parser.add_argument("--session", action="store_true", help="calls name their program")
    given = parser.parse_args()
    count = given.calls + _WARM
    if given.growing:
        bodies = list(Conversation("mock", given.size, given.seed).bodies(count))
    else:
        seeds = range(given.seed << 12, (given.seed << 12) + count)
        bodies = [next(Conversation("mock", given.size, seed).bodies(1)) for seed in seeds]
    parts = urlsplit(given.url)
    requests = []
    for number, body in enumerate(bodies):
        name = f"{given.seed}-{0 if given.growing else number}"
        named = f"X-Session-Id: bench-{name}\r\n" if given.session else ""
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n{named}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    latencies: list[float] = []
    errors, used = 0, 0.0
    for number, request in enumerate(requests):
        if number == _WARM:
            used = _used(given.pid)
        begun = time.perf_counter()
        errors += await connection.ask(request) != 200
        latencies.append(1000 * (time.perf_counter() - begun))
    used = _used(given.pid) - used
    connection.close()
    del latencies[:_WARM]
    found = {
        "p50_ms": percentile(latencies, 0.5),
        "p99_ms": percentile(latencies, 0.99),
        "errors": errors,
        "cpu_us": 1e6 * used / max(1, given.calls),
    }
    print(json.dumps(found))


def _used(pid: int) -> float:
    return cpu_seconds(pid) if pid else 0.0


if __name__ == "__main__":
    uvloop.run(main())
