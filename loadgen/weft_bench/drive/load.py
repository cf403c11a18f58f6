"""Light load client: keep-alive connections with one request after another.

Runs as a separate process (`python -m weft_bench.drive.load`), so that it shares no interpreter
with the measured program. Uses raw sockets to keep its overhead small. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from itertools import count as numbers
from itertools import repeat
from typing import Any, Final
from urllib.parse import urlsplit

from weft_bench.drive.client import Connection
from weft_bench.stats import percentile

# Placeholder at the prompt's end, as long as the number that replaces it.
_PLACE: Final = "0" * 16


def make_request(url: str, model: str, stream: bool, session: str = "") -> bytes:
    """Return the bytes of a chat completion request with a prompt of a few hundred bytes.

    session: names its program, as most agents do.
    """
    parts = urlsplit(url)
    body = json.dumps(
        {
            "model": model,
            "messages": [
                {"role": "user", "content": "Which flights leave on Monday? " * 8 + _PLACE}
            ],
            "max_tokens": 50,
            "stream": stream,
        }
    ).encode()
    named = f"X-Session-Id: {session}\r\n" if session else ""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        "Authorization: Bearer EMPTY\r\nAccept: application/json\r\n"
        f"{named}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def requests_of(request: bytes, distinct: bool) -> Iterator[bytes]:
    """Return the endless requests to send.

    distinct: prompts share a prefix and end in different numbers, as those of one template do.
    Otherwise all requests are the same bytes.
    """
    if not distinct:
        return repeat(request)
    begun, _, rest = request.partition(_PLACE.encode())
    # Start values differ, so that runs do not share numbers.
    first = time.time_ns() // 1000
    return (b"%b%016d%b" % (begun, number, rest) for number in numbers(first))


async def load(
    url: str, requests: Iterator[bytes], count: int, concurrency: int, seconds: float = 0.0
) -> dict[str, Any]:
    """Send `count` requests, `concurrency` at once, and more until `seconds` have passed.

    Returns latencies in milliseconds.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    left = count
    latencies: list[float] = []
    errors = 0
    loop = asyncio.get_running_loop()

    async def worker() -> None:
        nonlocal left, errors
        connection: Connection | None = None
        while (now := time.perf_counter()) < until or left > 0:
            left -= 1
            try:
                if connection is None or not connection.usable:
                    _, connection = await loop.create_connection(Connection, host, port)
                status = await asyncio.wait_for(connection.ask(next(requests)), 60)
            except (OSError, TimeoutError):
                status, connection = 0, None
            latencies.append(1000 * (time.perf_counter() - now))
            errors += status != 200
        if connection is not None:
            connection.close()

    begun = time.perf_counter()
    until = begun + seconds
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    duration = time.perf_counter() - begun
    return {
        "requests": len(latencies),
        "per_second": len(latencies) / duration,
        "p50_ms": percentile(latencies, 0.50),
        "p99_ms": percentile(latencies, 0.99),
        "errors": errors,
    }


def main() -> None:
    """Entry point."""
    import uvloop

    parser = argparse.ArgumentParser(prog="weft_bench.drive.load")
    parser.add_argument("url")
    parser.add_argument("--model", default="mock")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=0.0, help="minimum duration")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--session", default="")
    parser.add_argument("--distinct", action="store_true", help="all prompts differ")
    options = parser.parse_args()
    request = make_request(options.url, options.model, options.stream, options.session)
    requests = requests_of(request, options.distinct)
    amount = options.requests, options.concurrency, options.seconds
    print(json.dumps(uvloop.run(load(options.url, requests, *amount))))


if __name__ == "__main__":
    main()
