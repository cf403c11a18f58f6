"""Limits on one connection: request heads, timeouts, and clients that do not read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.raw_client import BODY, CALL, WHOLE, Raw, raw
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def drip(client: Raw, piece: bytes) -> None:
    """Send a piece repeatedly until the gateway closes the connection."""
    while await client.send(piece):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


# Heads


async def test_an_endless_head_is_431(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(CALL)
        sent = 0
        while await client.send(b"x-%d: %b\r\n" % (sent, b"a" * 8192)) and sent < 16:
            sent += 1
        await client.refused(431, "head_too_large")


async def test_an_endless_header_is_431(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(CALL + b"x-long: ")
        for _ in range(16):
            await client.send(b"a" * 8192)
        await client.refused(431, "head_too_large")


async def test_a_head_within_the_limit_passes(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, max_head_bytes=8192) as gateway:
        for size, status in ((7900, 200), (8192, 431)):
            async with raw(gateway) as client:
                head = CALL + b"x-long: %b\r\ncontent-length: %d\r\n\r\n"
                await client.send(head % (b"a" * size, len(BODY)) + BODY)
                assert (await client.answer())[0] == status


async def test_a_head_in_pieces_has_the_same_limit(engine: Any, weft: Any) -> None:
    rest = b"\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
    async with engine() as stub, weft(stub, max_head_bytes=8192) as gateway:
        for before in (b"", WHOLE):
            for size, status in ((3900, 200), (4200, 431)):
                async with raw(gateway) as client:
                    if before:
                        await client.send(before)
                        assert (await client.answer())[0] == 200
                    for piece in (CALL + b"a: ", b"\r\nb: "):
                        await client.send(piece + b"a" * size)
                        await asyncio.sleep(0.05)
                    await client.send(rest)
                    assert (await client.answer())[0] == status


async def test_a_head_after_a_long_body_is_counted_separately(engine: Any, weft: Any) -> None:
    body = b'{"model": "tiny", "messages": [], "x": "%b"}' % (b"a" * 20_000)
    request = CALL + b"content-length: %d\r\n\r\n" % len(body) + body
    async with engine() as stub, weft(stub, max_head_bytes=8192) as gateway, raw(gateway) as client:
        await client.send(CALL)
        await asyncio.sleep(0.05)
        # This piece contains the rest of one request and the start of the next head.
        await client.send(request[len(CALL) :] + CALL + b"a: b\r\n")
        assert (await client.answer())[0] == 200
        await client.send(WHOLE[len(CALL) :])
        assert (await client.answer())[0] == 200


async def test_a_long_body_does_not_count_as_a_head(engine: Any, weft: Any) -> None:
    body = b'{"model": "tiny", "messages": [], "x": "%b"}' % (b"a" * 300_000)
    request = CALL + b"content-length: %d\r\n\r\n" % len(body) + body
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        for _ in range(2):
            await client.send(request)
            assert (await client.answer())[0] == 200
        # The second request starts in the middle of one read of the gateway.
        await client.send(request + request)
        assert [(await client.answer())[0] for _ in range(2)] == [200, 200]


async def test_too_many_headers_are_431(engine: Any, weft: Any) -> None:
    length, limit = b"content-length: %d\r\n\r\n" % len(BODY), 128
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        # CALL and `length` have one header each.
        await client.send(CALL + b"a: b\r\n" * (limit - 2) + length + BODY)
        assert (await client.answer())[0] == 200
        await client.send(CALL + b"a: b\r\n" * (limit - 1) + length + BODY)
        await client.refused(431, "too_many_headers")


async def test_errors_have_the_format_of_the_requested_api(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(CALL.replace(b"chat/completions", b"messages") + b"a: b\r\n" * 200)
        status, _, body = await client.answer()
        assert (status, body["type"]) == (431, "error")
        assert body["error"]["type"] == "invalid_request_error"


async def test_invalid_http_is_an_error_in_json(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(b"GET / HTTP/9.9\r\n\r\n")
        await client.refused(400, "invalid_http")


# Trailers


CHUNKED = CALL + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)


async def test_an_endless_trailer_is_431(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(CHUNKED + b"x-long: ")
        for _ in range(16):
            await client.send(b"a" * 8192)
            await asyncio.sleep(0.01)
        await client.refused(431, "head_too_large")
        assert stub.requests == []


async def test_too_many_trailers_are_431(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(CHUNKED + b"a: b\r\n" * 130)
        await client.refused(431, "too_many_headers")


async def test_trailers_are_not_headers(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, api_keys="right") as gateway:
        async with raw(gateway) as client:
            await client.send(CHUNKED + b"authorization: Bearer right\r\n\r\n")
            assert (await client.answer())[0] == 401
        async with raw(gateway) as client:
            head = CALL + b"authorization: Bearer right\r\nx-weft-program: own\r\n"
            trailers = b"x-weft-program: other\r\nbaggage: other\r\n\r\n"
            await client.send(CHUNKED.replace(CALL, head) + trailers)
            status, headers, _ = await client.answer()
            assert (status, headers["x-weft-program"]) == (200, "own")
        assert "baggage" not in stub.requests[0].headers


# Timeouts


async def test_a_slow_head_is_408(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, head_timeout_s=0.3) as gateway, raw(gateway) as client:
        await client.send(CALL)

        dripping = asyncio.create_task(drip(client, b"a: b\r\n"))
        status, _, body = await client.answer()
        assert (status, body["error"]["code"]) == (408, "head_timeout")
        # The client may send for a moment, so that it can read the error. Then the connection
        # closes.
        await asyncio.wait_for(dripping, DEADLINE_S)


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
async def test_a_connection_that_sends_nothing_is_closed(
    sent: bytes, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub, head_timeout_s=0.3) as gateway, raw(gateway) as client:
        await client.send(sent)
        assert await client.ended() == b""


async def test_empty_lines_do_not_keep_a_connection_open(engine: Any, weft: Any) -> None:
    settings = {"head_timeout_s": 0.5, "keep_alive_s": 0.5}
    async with engine() as stub, weft(stub, **settings) as gateway, raw(gateway) as client:
        await client.send(WHOLE)
        assert (await client.answer())[0] == 200
        await asyncio.wait_for(drip(client, b"\r\n"), DEADLINE_S)


async def test_a_slow_body_is_408_and_opens_no_call(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, body_timeout_s=0.3) as gateway, raw(gateway) as client:
        await client.send(CALL + b"content-length: 100000\r\n\r\n{")
        dripping = asyncio.create_task(drip(client, b" "))
        status, _, body = await client.answer()
        assert (status, body["error"]["code"]) == (408, "body_timeout")
        await asyncio.wait_for(dripping, DEADLINE_S)
        assert stub.requests == []


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/files", b"/v1/messages/batches"])
async def test_a_body_may_take_longer_than_its_timeout_while_it_arrives(
    path: bytes, engine: Any, weft: Any, skip: Any
) -> None:
    """The last bytes come late, so the body's time has begun again several times."""
    form = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\n'
    form += b'content-disposition: form-data; name="file"; filename="f"\r\n\r\n%b\r\n--b--\r\n'
    request = b'{"custom_id":"a","params":{"model":"tiny","max_tokens":1,"messages":[]}}'
    whole = {
        b"/v1/chat/completions": b'{"model": "tiny", "messages": []%b}',
        b"/v1/files": form,
        b"/v1/messages/batches": b'{"requests": [%b]%%b}' % request,
    }[path]
    timeout_s, piece, pieces = 10.0, b" " * 65536, 20
    body = whole % (piece * pieces)
    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
    async with (
        engine() as stub,
        weft(stub, body_timeout_s=timeout_s) as gateway,
        raw(gateway) as client,
    ):
        await client.send(head % path + b"content-length: %d\r\n\r\n" % len(body))
        for _ in range(pieces):
            await client.send(body[: len(piece)])
            body = body[len(piece) :]
            await skip(timeout_s / 10)
        await client.send(body)
        assert (await client.answer())[0] == 200


async def test_the_body_of_a_pipelined_request_does_not_end_the_answer_before_it(
    engine: Any, weft: Any, until: Any, skip: Any
) -> None:
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go.wait()
        await wire.plain({"id": "resp_1"})

    async with (
        engine(script=script) as stub,
        weft(stub, body_timeout_s=10) as gateway,
        raw(gateway) as client,
    ):
        await client.send(WHOLE + WHOLE[:-1])
        await until(lambda: stub.requests)
        await skip(11)
        go.set()
        assert (await client.answer())[0] == 200
        await client.send(WHOLE[-1:])
        assert (await client.answer())[0] == 200


async def test_an_idle_connection_is_closed(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, keep_alive_s=0.3) as gateway, raw(gateway) as client:
        await client.send(WHOLE)
        assert (await client.answer())[0] == 200
        assert await client.ended() == b""


async def test_request_timeouts_do_not_limit_a_long_answer(
    engine: Any, weft: Any, until: Any, skip: Any
) -> None:
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go.wait()
        await wire.plain({"id": "resp_1"})

    times = ("head_timeout_s", "body_timeout_s", "keep_alive_s", "send_timeout_s")
    async with (
        engine(script=script) as stub,
        weft(stub, **dict.fromkeys(times, 10)) as gateway,
        raw(gateway) as client,
    ):
        # A part of the next head is already in the buffer.
        await client.send(WHOLE + CALL)
        await until(lambda: stub.requests)
        await skip(11)
        go.set()
        assert (await client.answer())[0] == 200


# Clients that do not read


async def test_a_client_that_does_not_read_is_disconnected_and_releases_the_engine(
    engine: Any, weft: Any, until: Any
) -> None:
    piece = b"data: %b\n\n" % (b"x" * 65536)
    sent = 0

    async def script(wire: Any, request: Any) -> None:
        nonlocal sent
        await wire.stream(end=False)
        while True:
            await wire.pieces(piece, end=False)
            sent += 1

    async with (
        engine(script=script) as stub,
        weft(stub, send_timeout_s=0.3) as gateway,
        raw(gateway, buffer=4096) as client,
    ):
        body = BODY.replace(b"[]", b'[], "stream": true')
        await client.send(CALL + b"content-length: %d\r\n\r\n" % len(body) + body)
        async with asyncio.timeout(DEADLINE_S):
            while not stub.closed_connections:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        # The engine sees the end of its connection before the gateway has closed the call.
        await until(lambda: gateway.in_flight() == 0)
        (program,) = await gateway.parts.table.programs("public", 9)
        assert sent
        assert program.calls_closed == program.calls == 1
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_errors_total{code="client_stalled"} 1.0' in metrics


async def test_a_plain_answer_to_a_client_that_does_not_read_releases_its_connection(
    engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"x": "y" * 8_000_000})

    async with (
        engine(script=script) as stub,
        weft(stub, send_timeout_s=0.3) as gateway,
        raw(gateway, buffer=4096) as client,
    ):
        await client.send(WHOLE.replace(b"host: x\r\n", b"host: x\r\nconnection: close\r\n"))
        metrics = ""
        async with asyncio.timeout(DEADLINE_S):
            while "client_stalled" not in metrics:
                metrics = (await gateway.client.get("/metrics")).text
                await asyncio.sleep(0.05)


async def test_a_slow_reader_gets_the_complete_answer(engine: Any, weft: Any, skip: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"x": "y" * 2_000_000})

    async with (
        engine(script=script) as stub,
        weft(stub, send_timeout_s=10) as gateway,
        raw(gateway, buffer=4096) as client,
    ):
        await client.send(WHOLE)
        head = await client.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split()[0])
        got = 0
        while got < size:
            got += len(await client.reader.read(65536))
            await skip(1)
        assert got == size
