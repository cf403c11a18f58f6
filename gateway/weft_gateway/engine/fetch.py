"""What an engine answers to a question of the gateway's own, with limits on size and time.

The engine chooses the size and the pace of its answer, so both are bounded: an answer without end
must not fill the memory, and one that drips must not hold the task that asked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import httpx
import orjson

# A list of some thousand models with their permissions is smaller.
MAX_BYTES: Final = 4_194_304


class Fetched(NamedTuple):
    """An answer. body: b"" where only the status was wanted."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The parsed body. ValueError where it is not JSON; NaN and infinity are not."""
        return orjson.loads(self.body)


async def fetch(
    client: httpx.AsyncClient,
    url: str,
    headers: dict[str, str],
    within_s: float,
    max_bytes: int = MAX_BYTES,
    *,
    method: str = "GET",
    message: Any = None,
) -> Fetched:
    """Ask `url`; `message` is sent as JSON. httpx.HTTPError where nothing usable comes:
    httpx.TimeoutException where the whole answer does not come within `within_s` seconds."""
    # A compressed answer may be of any size once it is unpacked.
    headers = {**headers, "accept-encoding": "identity"}
    try:
        async with (
            asyncio.timeout(within_s),
            client.stream(method, url, headers=headers, json=message, timeout=within_s) as answer,
        ):
            if "content-encoding" in answer.headers:
                raise httpx.DecodingError("compressed, though that was not accepted")
            body = bytearray()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > max_bytes:
                    raise httpx.DecodingError(f"more than {max_bytes} bytes")
            return Fetched(answer.status_code, bytes(body))
    except TimeoutError:
        raise httpx.ReadTimeout(f"no answer within {within_s} s") from None
