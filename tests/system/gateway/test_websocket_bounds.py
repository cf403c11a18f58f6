"""Limits on the WebSockets of the Responses API, and malformed upgrades."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.raw_client import BODY, CALL, raw
from support.stack import free_port
from support.waiting import DEADLINE_S
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from weft_gateway.api.websocket_server import DrainingSocket

pytestmark = [pytest.mark.system, pytest.mark.anyio]

UPGRADE = b"host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
KEY = b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n"
OPENING = b"GET /v1/responses HTTP/1.1\r\n" + UPGRADE


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n".encode()


async def complete(wire: Any, request: Any) -> None:
    """Answer with an empty response."""
    done = {"id": "resp_001", "object": "response", "output": []}
    await wire.stream(event("response.completed", sequence_number=0, response=done))


def socket(gateway: Any, **more: Any) -> Any:
    url = gateway.url.replace("http", "ws", 1) + "/v1/responses"
    return connect(url, proxy=None, **more)


async def create(client: ClientConnection, **members: Any) -> dict[str, Any]:
    """Send one message and return the last event of its answer."""
    await client.send(json.dumps({"type": "response.create", "model": "tiny"} | members))
    return await last(client)


async def last(client: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            parsed: dict[str, Any] = json.loads(await client.recv())
            if parsed["type"] in ("response.completed", "error"):
                return parsed


async def closed_with(client: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed) as raised:
        async with asyncio.timeout(DEADLINE_S):
            await client.recv()
    return raised.value.rcvd.code if raised.value.rcvd is not None else None


@pytest.mark.parametrize("pieces", [[b"\xff\xfe"], [b"{", b"\xff"]])
async def test_invalid_utf8_closes_the_connection_without_a_logged_exception(
    pieces: list[bytes], engine: Any, weft: Any, caplog: Any
) -> None:
    async with engine(script=complete) as stub, weft(stub) as gateway:
        logging.getLogger("uvicorn.error").addHandler(caplog.handler)
        async with socket(gateway) as client:
            await client.send(iter(pieces) if len(pieces) > 1 else pieces[0], text=True)
            assert await closed_with(client) == 1007
        async with socket(gateway) as client:
            assert (await create(client))["type"] == "response.completed"
    logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.exc_info]


# Upgrades


@pytest.mark.parametrize(
    "fields",
    [
        b"",
        KEY.replace(b"13", b"12"),
        KEY.replace(b"A==", b""),
        KEY + KEY,
        b"cookie: %b\r\n" % (b"a" * 9000),
    ],
    ids=["no key", "other version", "short key", "two keys", "large cookie and no key"],
)
async def test_a_malformed_upgrade_is_an_error_and_closes_its_connection(
    engine: Any, weft: Any, fields: bytes
) -> None:
    async with engine() as stub, weft(stub, max_connections=1) as gateway:
        async with asyncio.timeout(DEADLINE_S):
            refused = False
            while not refused:
                # The connection of the start may still have the only place.
                with contextlib.suppress(ConnectionError):
                    async with raw(gateway) as client:
                        await client.send(OPENING + fields + b"\r\n")
                        refused = bool(await client.refused(400, "invalid_upgrade"))
            while (await gateway.client.get("/v1/models")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_an_upgrade_that_cannot_be_a_websocket_is_ignored(engine: Any, weft: Any) -> None:
    length = b"content-length: %d\r\n\r\n" % len(BODY)
    async with engine() as stub, weft(stub) as gateway:
        async with raw(gateway) as client:
            await client.send(CALL + UPGRADE.removeprefix(b"host: x\r\n") + KEY + length + BODY)
            assert (await client.answer())[0] == 200
        async with raw(gateway) as client:
            await client.send(OPENING + KEY + length + BODY)
            status, _, body = await client.answer()
            assert (status, body["error"]["code"]) == (405, "method_not_allowed")
        async with raw(gateway) as client:
            await client.send(OPENING.replace(b"responses", b"models") + KEY + b"\r\n")
            assert (await client.answer())[0] == 200


async def test_a_client_with_a_large_cookie_connects(engine: Any, weft: Any) -> None:
    cookie = {"cookie": "a" * 30_000}
    async with (
        engine(script=complete) as stub,
        weft(stub) as gateway,
        socket(gateway, additional_headers=cookie) as client,
    ):
        assert (await create(client, input="Hello"))["type"] == "response.completed"


async def test_malformed_upgrades_do_not_break_the_shutdown(engine: Any) -> None:
    port = free_port()
    async with engine() as stub:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)),
            env={**os.environ, "WEFT_REPLICAS": stub.url},
            stderr=asyncio.subprocess.PIPE,
        )
        writers = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not writers:
                    await asyncio.sleep(0.05)
                    with contextlib.suppress(OSError):
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        writers.append(writer)
                for opening in (
                    OPENING + b"cookie: %b\r\n" % (b"a" * 9000) + KEY,
                    OPENING.replace(b"GET", b"POST") + KEY + b"content-length: 0\r\n",
                    OPENING,
                ):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writers.append(writer)
                    writer.write(opening + b"\r\n")
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1):
                            await reader.read(1)
                process.send_signal(signal.SIGTERM)
                _, stderr = await process.communicate()
            assert process.returncode == 0
            assert b"Traceback" not in stderr
        finally:
            for writer in writers:
                writer.close()
            if process.returncode is None:
                process.kill()
                await process.wait()


# Messages


async def test_a_large_message_takes_a_turn(engine: Any, weft: Any) -> None:
    async with engine(script=complete) as stub, weft(stub) as gateway, socket(gateway) as client:
        taken, take = [], gateway.parts.turns.take

        async def counted(tenant: str, cost: float) -> None:
            taken.append(cost)
            await take(tenant, cost)

        gateway.parts.turns.take = counted
        await create(client, input="x" * 20_000, generate=False)
        assert len(taken) == 1
        assert taken[0] > 20_000


async def test_only_the_input_of_a_message_may_have_very_many_values(
    engine: Any, weft: Any
) -> None:
    async with engine(script=complete) as stub, weft(stub) as gateway, socket(gateway) as client:
        await client.send('{"type": "response.create", "x": [%s{}]}' % ("{}," * 500_000))
        assert (await last(client))["error"]["code"] == "too_complex"
        many = [{}] * 200_000
        assert (await create(client, input=many))["type"] == "response.completed"
        assert len(stub.requests[-1].json["input"]) == 200_000


async def test_many_tiny_frames_are_parsed_over_several_loop_iterations(
    engine: Any, weft: Any
) -> None:
    async with engine(script=complete) as stub, weft(stub) as gateway, socket(gateway) as client:
        await create(client)
        (server,) = [one for one in gc.get_objects() if isinstance(one, DrainingSocket)]
        text = json.dumps({"type": "response.create", "model": "tiny", "input": "x" * 40_000})
        first, *rest = [b"\x81\x00\x00\x00\x00" + one.encode() for one in text]
        server.data_received(b"\x01" + first + b"".join([b"\x00" + one for one in rest]))
        assert len(server.frames) == 1
        assert len(server.frames[0]) < 1000
        server.data_received(b"\x80\x80\x00\x00\x00\x00")
        assert (await last(client))["type"] == "response.completed"
        assert len(stub.requests[-1].json["input"]) == 40_000


async def test_tiny_frames_of_many_websockets_do_not_stall_other_keys(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=complete) as stub,
        weft(stub) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(20):
            headers = {"authorization": "Bearer many"}
            await stack.enter_async_context(socket(gateway, additional_headers=headers))
        client = await stack.enter_async_context(socket(gateway))
        found = [one for one in gc.get_objects() if isinstance(one, DrainingSocket)]
        servers = [
            one for one in found if (b"authorization", b"Bearer many") in one.scope["headers"]
        ]
        assert len(servers) == 20
        for server in servers:
            server.data_received(b"\x01\x81\x00\x00\x00\x00x" + b"\x00\x80\x00\x00\x00\x00" * 5000)
        assert sum(len(server.frames) for server in servers) == 1
        await create(client)
        assert all(server._unparsed for server in servers)


async def test_a_too_large_message_closes_the_websocket(engine: Any, weft: Any) -> None:
    async with (
        engine(script=complete) as stub,
        weft(stub, websocket_message_bytes=4096) as gateway,
        socket(gateway) as client,
    ):
        await client.send("x" * 5000)
        assert await closed_with(client) == 1009


# Clients that do not read


async def test_a_client_that_does_not_read_is_disconnected(
    engine: Any, weft: Any, until: Any
) -> None:
    delta = event("response.output_text.delta", sequence_number=1, delta="x" * 100_000)

    async def script(wire: Any, request: Any) -> None:
        if "Much" not in request.json["input"]:
            await complete(wire, request)
            return
        await wire.stream(end=False)
        while True:
            await wire.pieces(delta, end=False)

    async with (
        engine(script=script) as stub,
        weft(stub, send_timeout_s=0.3, websockets_per_tenant=1) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):
        client = await stack.enter_async_context(socket(gateway, max_queue=1, close_timeout=0.1))
        message = {"type": "response.create", "model": "tiny", "input": "Much"}
        await client.send(json.dumps(message))
        await until(lambda: gateway.in_flight() == 1)
        await until(lambda: gateway.in_flight() == 0)
        assert 'code="client_stalled"' in (await gateway.client.get("/metrics")).text
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with contextlib.suppress(InvalidStatus):
                    other = await stack.enter_async_context(socket(gateway))
                    break
                await asyncio.sleep(0.01)
        assert (await create(other, input="Little"))["type"] == "response.completed"


# Counts


async def test_the_least_recently_used_websocket_is_closed_for_a_new_connection(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=complete) as stub,
        weft(stub, max_connections=2) as gateway,
        socket(gateway) as one,
        socket(gateway) as two,
    ):
        for client in (two, one):
            assert (await create(client))["type"] == "response.completed"
        assert (await gateway.client.get("/v1/models")).status_code == 200
        assert await closed_with(two) == 1013
        assert (await create(one))["type"] == "response.completed"


async def test_websockets_count_as_connections_of_their_key(engine: Any, weft: Any) -> None:
    key = {"authorization": "Bearer a"}
    async with (
        engine(script=complete) as stub,
        weft(stub, max_connections_per_key=1) as gateway,
    ):
        async with socket(gateway, additional_headers=key) as client:
            await create(client)
            refused = await gateway.client.get("/v1/models", headers=key)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "too_many_connections_of_key"
            with pytest.raises(InvalidStatus) as raised:
                await socket(gateway, additional_headers=key)
            assert raised.value.response.status_code == 429
        async with asyncio.timeout(DEADLINE_S):
            while (await gateway.client.get("/v1/models", headers=key)).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_stored_items_have_a_budget_and_the_least_recently_used_are_evicted(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=complete) as stub,
        weft(stub, stored_answers_bytes=7000) as gateway,
        socket(gateway) as one,
        socket(gateway) as two,
    ):
        prepared = [
            (await create(client, input="x" * 3000, generate=False))["response"]["id"]
            for client in (one, two)
        ]
        evicted = await create(one, input="More", previous_response_id=prepared[0])
        assert evicted["error"]["code"] == "previous_response_not_found"
        assert (await create(two, input="More", previous_response_id=prepared[1]))[
            "type"
        ] == "response.completed"
        # A client resends the whole input after this error.
        assert (await create(one, input="x" * 3000))["type"] == "response.completed"


async def test_a_removed_key_prepares_nothing(engine: Any, weft: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[keys.one]\nkey = "sk-one"\n')
    headers = {"authorization": "Bearer sk-one"}
    async with (
        engine() as stub,
        weft(stub, keys_file=str(keys)) as gateway,
        socket(gateway, additional_headers=headers) as client,
    ):
        assert (await create(client, input="x", generate=False))["type"] == "response.completed"
        keys.write_text(keys.read_text().replace("sk-one", "sk-two"))
        gateway.parts.reload_keys()
        refused = await create(client, input="x", generate=False)
        assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")
