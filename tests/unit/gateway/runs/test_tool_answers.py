"""Answers of tools that are no plain JSON of limited size fail their rows."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from support.scripted_server import scripted
from weft_gateway.runs.errors import CallFailed
from weft_gateway.runs.tools import Tools
from weft_gateway.workflows.commands import Failure
from weft_gateway.workflows.requests import HttpRequest

pytestmark = pytest.mark.anyio


async def failure(request: Any, **options: Any) -> Failure:
    tools = Tools(**options)
    with pytest.raises(CallFailed) as error:
        await tools.run(request, 1)
    await tools.aclose()
    return error.value.failure


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip", "zstd", "br", " GZIP"])
async def test_compressed_answers_are_refused(coding: str) -> None:
    with scripted(lambda _: (200, {"a": 1}, {"content-encoding": coding})) as server:
        host = server.url.removeprefix("http://")
        found = await failure(HttpRequest("GET", server.url), hosts=[host])
        assert (found.code, coding.strip().lower() in found.message) == ("compressed", True)
        assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_a_compressed_error_keeps_its_status() -> None:
    body = gzip.compress(b"no").decode("latin-1")
    with scripted(lambda _: (404, body, {"content-encoding": "gzip"})) as server:
        host = server.url.removeprefix("http://")
        found = await failure(HttpRequest("GET", server.url), hosts=[host])
        assert (found.code, found.message) == ("http_404", "Not Found")


async def test_headers_of_a_request_replace_the_usual_ones() -> None:
    headers = {"Content-Type": "text/x", "Accept-Encoding": "br"}
    with scripted(lambda _: (200, {}, {"content-encoding": "identity"})) as server:
        tools = Tools(hosts=[server.url.removeprefix("http://")])
        assert (await tools.run(HttpRequest("POST", server.url, headers, {}), 1)).value == {}
        await tools.aclose()
        found = server.asked[0].headers
        assert (found["content-type"], found["accept-encoding"]) == ("text/x", "br")
