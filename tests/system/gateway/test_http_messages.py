"""Requests and answers as RFC 9110 and 9112 define them, with clients that send raw bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.raw_client import BODY, CALL, raw
from support.raw_http import ask

pytestmark = [pytest.mark.system, pytest.mark.anyio]

CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
EVENTS = (b'data: {"choices": []}\n\n', b"data: [DONE]\n\n")


async def answer(wire: Any, request: Any) -> None:
    if request.json.get("stream"):
        await wire.stream(*EVENTS)
    else:
        await wire.plain({"id": "1"})


def call(headers: bytes, body: bytes = b"", start: bytes = CALL) -> bytes:
    sized = b"" if body else b"content-length: %d\r\n" % len(BODY)
    return start + headers + sized + b"\r\n" + (body or BODY)


NO_HOST = CALL.replace(b"host: x\r\n", b"")
REFUSED = {
    "two keys": (400, "repeated_header", call(b"authorization: Bearer a\r\nAuthorization: b\r\n")),
    "two other keys": (400, "repeated_header", call(b"x-api-key: a\r\nx-api-key: b\r\n")),
    "two hosts": (400, "repeated_header", call(b"host: y\r\n")),
    "no host": (400, "invalid_http", call(b"", start=NO_HOST)),
    "two lengths": (400, "invalid_http", call(b"content-length: %d\r\n" % len(BODY))),
    "length and chunks": (400, "invalid_http", call(b"transfer-encoding: chunked\r\n")),
    "codings": (501, "unsupported_transfer_coding",
                call(b"transfer-encoding: gzip, chunked\r\n", CHUNKED)),
    "an unknown coding": (501, "unsupported_transfer_coding",
                          call(b"transfer-encoding: foo\r\n", CHUNKED)),
    "two codings": (400, "repeated_header",
                    call(b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", CHUNKED)),
    "chunks of HTTP/1.0": (400, "invalid_http",
                           call(b"transfer-encoding: chunked\r\n", CHUNKED,
                                CALL.replace(b"1.1", b"1.0"))),
    "an expectation": (417, "expectation_failed", call(b"expect: 200-ok\r\n")),
    "HTTP/2.0": (505, "unsupported_http_version", call(b"", start=CALL.replace(b"1.1", b"2.0"))),
    "HTTP/0.9": (505, "unsupported_http_version", b"GET /v1/models\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_a_request_that_others_may_read_differently_is_refused(
    name: str, engine: Any, weft: Any
) -> None:
    status, code, request = REFUSED[name]
    async with engine(script=answer) as stub, weft(stub) as gateway:
        found = await ask(gateway.url, request)
        assert found.status == status
        assert found.json["error"]["code"] == code
        of_anthropic = request.replace(b"/v1/chat/completions", b"/v1/messages")
        if of_anthropic != request:
            found = await ask(gateway.url, of_anthropic)
            assert (found.status, found.json["type"]) == (status, "error")
        assert not stub.requests
        metrics = (await gateway.client.get("/metrics")).text
        assert f'weft_errors_total{{code="{code}"}}' in metrics


async def test_usual_requests_are_not_refused(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        for headers, body in (
            (b"authorization: Bearer a\r\nx-api-key: a\r\n", b""),
            (b"Transfer-Encoding: Chunked\r\n", CHUNKED),
            (b"accept: a\r\naccept: b\r\n", b""),
        ):
            assert (await ask(gateway.url, call(headers, body))).status == 200
        async with raw(gateway) as client:
            await client.send(call(b"Expect: 100-Continue\r\n")[: -len(BODY)])
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            await client.send(BODY)
            assert (await client.answer())[0] == 200


async def test_a_client_of_http_1_0_gets_no_chunks(engine: Any, weft: Any) -> None:
    start = CALL.replace(b"1.1", b"1.0")
    body = json.dumps({"model": "tiny", "messages": [], "stream": True}).encode()
    async with engine(script=answer) as stub, weft(stub) as gateway:

        async def said(request: bytes) -> tuple[bytes, bytes]:
            async with raw(gateway) as client:
                await client.send(request)
                head, _, rest = (await client.ended()).partition(b"\r\n\r\n")
            assert b"connection: close" in head
            assert b"transfer-encoding" not in head
            return head, rest

        head, events = await said(start + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert events == b"".join(EVENTS)
        assert b"content-length" not in head
        # A body is not continued, since this version knows no interim answers.
        head, plain = await said(call(b"expect: 100-continue\r\n", start=start))
        assert head.startswith(b"HTTP/1.1 200 ")
        assert json.loads(plain) == {"id": "1"}


async def test_ranges_of_files(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        form = {"files": {"file": ("f", b"0123456789")}, "data": {"purpose": "batch"}}
        file_id = (await gateway.client.post("/v1/files", **form)).json()["id"]
        path = f"/v1/files/{file_id}/content"
        for wanted, status, content in (
            ("bytes=2-4", 206, b"234"),
            ("bytes=-3", 206, b"789"),
            # Ignored: an unknown unit, and ranges that are not valid.
            ("lines=1-2", 200, b"0123456789"),
            ("bytes=x", 200, b"0123456789"),
            ("bytes=4-2", 200, b"0123456789"),
        ):
            found = await gateway.client.get(path, headers={"range": wanted})
            assert (found.status_code, found.content) == (status, content), wanted
        found = await gateway.client.get(path, headers={"range": "bytes=10-"})
        assert (found.status_code, found.headers["content-range"]) == (416, "bytes */10")
        assert found.json()["error"]["code"] == "range_not_satisfiable"


async def test_the_head_of_a_stream_of_events_ends(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        await gateway.client.post("/v1/sessions", json={"id": "mine"})
        async with raw(gateway) as client:
            await client.send(
                b"HEAD /v1/sessions/mine/events HTTP/1.1\r\nhost: x\r\n\r\n"
                b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            )
            heads, _, models = (await client.ended()).rpartition(b"\r\n\r\n")
        assert heads.count(b"HTTP/1.1 200 OK") == 2
        assert json.loads(models)["data"][0]["id"] == "tiny"
