"""Sends the gateway's own requests to an engine, with limits on size and time.

The engine controls the size and the pace of its answer, so both are bounded: an endless answer must
not fill the memory, and a slow one must not block the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
import orjson

from weft_gateway.engine.registry import Replica

SECRET_HEADER: Final = "x-weft-secret"
# The routes of Weft's plugin. Only these get the secret.
_OF_THE_PLUGIN: Final = "/weft/"
# A list of several thousand models with their permissions is smaller.
MAX_BYTES: Final = 4_194_304


class Fetched(NamedTuple):
    """An answer. body: b"" if only the status was requested."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the parsed body. Raises ValueError if it is not JSON; NaN and infinity are
        invalid.
        """
        return orjson.loads(self.body)


class EngineClient:
    """Sends the gateway's own requests to replicas, with its credentials."""

    def __init__(self, client: httpx.AsyncClient, secret: str = "") -> None:
        """secret: for the routes of the plugin; "": none."""
        self._client = client
        self.secret = secret

    async def fetch(
        self,
        replica: Replica,
        path: str,
        within_s: float,
        max_bytes: int = MAX_BYTES,
        *,
        method: str = "GET",
        message: Any = None,
    ) -> Fetched:
        """Request a path of a replica; `message` is sent as JSON. Raises httpx.HTTPError if the
        answer is unusable, and httpx.TimeoutException if it is not complete within `within_s`
        seconds.
        """
        headers = {}
        if replica.api_key:
            headers["authorization"] = f"Bearer {replica.api_key}"
        if self.secret and path.startswith(_OF_THE_PLUGIN):
            headers[SECRET_HEADER] = self.secret
        return await self._send(
            method, f"{replica.url}{path}", headers, message, within_s, max_bytes
        )

    async def probe(self, url: str, within_s: float) -> Fetched:
        """Request a URL of a server that is no replica yet, without credentials. Raises as
        `fetch`.
        """
        return await self._send("GET", url, {}, None, within_s, MAX_BYTES)

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        message: Any,
        within_s: float,
        max_bytes: int,
    ) -> Fetched:
        # A compressed answer has no size limit once it is decompressed.
        headers = {"accept-encoding": "identity", **headers}
        request = self._client.stream(method, url, headers=headers, json=message, timeout=within_s)
        try:
            async with asyncio.timeout(within_s), request as answer:
                if "content-encoding" in answer.headers:
                    raise httpx.DecodingError("compressed, although the request accepts none")
                body = bytearray()
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > max_bytes:
                        raise httpx.DecodingError(f"more than {max_bytes} bytes")
                return Fetched(answer.status_code, bytes(body))
        except TimeoutError:
            raise httpx.ReadTimeout(f"no answer within {within_s} s") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
