"""`python -m weft_bench.overhead.floor ENGINE --port N`: receives calls with uvicorn, sends them on
over the gateway's connections, and does nothing else. Its cost is the floor of the gateway's.
"""

from __future__ import annotations

import argparse
from typing import Any

import uvicorn
from weft_gateway.engine.pool import Exchange, Timeouts, Upstream


class Floor:
    """An ASGI application in front of one engine."""

    def __init__(self, engine: str) -> None:
        self._upstream = Upstream(engine, Timeouts(5.0, 900.0, 120.0))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass one request on."""
        if scope["method"] != "POST":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message["body"])
            more = message["more_body"]
        body = b"".join(parts)
        head = b"POST %b HTTP/1.1\r\nhost: engine\r\ncontent-length: %d\r\n\r\n" % (
            scope["raw_path"],
            len(body),
        )
        exchange = Exchange(self._upstream)
        try:
            await exchange.start(head, body)
            headers = [pair for pair in exchange.headers if pair[0] == b"content-type"]
            start = {"type": "http.response.start", "status": exchange.status, "headers": headers}
            await send(start)
            while data := await exchange.read():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            exchange.close()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="weft_bench.overhead.floor")
    parser.add_argument("engine")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    uvicorn.run(
        Floor(given.engine),
        port=given.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
