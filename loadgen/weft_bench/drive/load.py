"""Load of prepared requests: a closed loop, or calls at fixed times.

Runs as a separate process (`python -m weft_bench.drive.load`), so that it shares no interpreter
with the measured program. Prepared bytes keep its overhead below that of `Client`. Prints one JSON
object.
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
# A call at a fixed time that takes longer has failed, seconds.
_LATE_S: Final = 30.0


def make_request(
    url: str, model: str, stream: bool, session: str = "", key: str = "EMPTY"
) -> bytes:
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
        f"Authorization: Bearer {key}\r\nAccept: application/json\r\n"
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
    left = count
    latencies: list[float] = []
    errors = 0

    async def worker() -> None:
        nonlocal left, errors
        connection: Connection | None = None
        while (now := time.perf_counter()) < until or left > 0:
            left -= 1
            try:
                if connection is None or not connection.usable:
                    connection = await _connect(url)
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


async def load_at_times(url: str, request: bytes, seconds: float, every_s: float) -> dict[str, Any]:
    """Send one request every `every_s` seconds for `seconds`. Returns latencies and errors.

    The schedule does not wait for answers, and latency, in milliseconds, counts from the scheduled
    time: if the gateway blocks, the calls that become due meanwhile are late too. Every second call
    uses a new connection, like a client's first call. If the gateway has closed a kept connection,
    the call is repeated once, as HTTP clients do.
    """
    kept: list[Connection] = []
    latencies: list[float] = []
    errors = 0

    async def call(number: int, due: float) -> None:
        nonlocal errors
        await asyncio.sleep(due - time.perf_counter())
        use = kept.pop() if kept and number % 2 == 0 else None
        status = 0
        try:
            async with asyncio.timeout(due + _LATE_S - time.perf_counter()):
                status = await use.ask(request) if use is not None else 0
                if use is None or not status:
                    use = await _connect(url)
                    status = await use.ask(request)
                if number % 2:
                    use.close()
                else:
                    kept.append(use)
        except (OSError, TimeoutError):
            pass
        # The loop's own clock may count whole milliseconds.
        latencies.append(1000 * (time.perf_counter() - due))
        errors += status != 200

    begun = time.perf_counter()
    count = max(1, int(seconds / every_s))
    await asyncio.gather(*(call(number, begun + number * every_s) for number in range(count)))
    for connection in kept:
        connection.close()
    return {"latencies_ms": latencies, "errors": errors}


async def _connect(url: str) -> Connection:
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    return (await asyncio.get_running_loop().create_connection(Connection, host, port))[1]


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
    parser.add_argument("--key", default="EMPTY", help="API key")
    parser.add_argument("--distinct", action="store_true", help="all prompts differ")
    parser.add_argument("--every", type=float, default=0.0, help="seconds from call to call")
    given = parser.parse_args()
    request = make_request(given.url, given.model, given.stream, given.session, given.key)
    if given.every:
        work = load_at_times(given.url, request, given.seconds, given.every)
    else:
        requests = requests_of(request, given.distinct)
        work = load(given.url, requests, given.requests, given.concurrency, given.seconds)
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main()
