"""Serves a handler of httpx requests on a real socket."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from aiohttp import web
from weft_bench.drive.client import Client

_NOT_COPIED = {"content-length", "transfer-encoding"}


@asynccontextmanager
async def serving(handler: Callable[[httpx.Request], Any]) -> AsyncIterator[str]:
    """Run a server in this event loop. Yields its URL.

    handler: returns or awaits an httpx.Response, whose stream is sent piece by piece, or None to
    close the connection.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        url = f"http://{request.host}{request.path_qs}"
        found = handler(httpx.Request(request.method, url, headers=request.headers, content=body))
        if inspect.isawaitable(found):
            found = await found
        if found is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        headers = {k: v for k, v in found.headers.items() if k not in _NOT_COPIED}
        response = web.StreamResponse(status=found.status_code, headers=headers)
        await response.prepare(request)
        async for part in found.stream:
            await response.write(part)
        return response

    runner = web.ServerRunner(web.Server(answer, handler_cancellation=True), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(handler: Callable[[httpx.Request], Any]) -> AsyncIterator[Client]:
    """Yield a client of a served handler."""
    async with serving(handler) as url, Client(url) as client:
        yield client
