"""Ids are UTF-8 texts of at most 256 bytes, with the same rules on every route."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]

INVALID_UTF8 = [b"\xff\xfe", b"\xc3", b"a\xed\xa0\x80b"]


def refusal(got: Any) -> tuple[int, str]:
    assert got.headers["content-type"] == "application/json"
    return got.status_code, got.json()["error"]["code"]


@pytest.mark.parametrize("raw", INVALID_UTF8, ids=repr)
async def test_invalid_utf8_is_refused_on_every_route(raw: bytes, engine: Any, weft: Any) -> None:
    escaped = quote(raw)
    async with engine() as stub, weft(stub) as gateway:
        client = gateway.client
        answers = [
            await gateway.call(headers={"x-weft-program": raw}),
            await gateway.call(headers={"x-weft-program": "p", "x-weft-thread": raw}),
            await gateway.call(headers={"session-id": raw}),
            await gateway.call(f"/p/{escaped}/v1/chat/completions"),
            await client.get(f"/v1/sessions/{escaped}"),
            await client.delete(f"/v1/sessions/{escaped}"),
            await client.get(f"/v1/sessions?after={escaped}"),
            await client.post(f"/finish_session?session_id={escaped}"),
        ]
        assert [refusal(got) for got in answers] == [(400, "bad_id")] * len(answers)
        assert stub.requests == []
        assert (await client.get("/v1/sessions")).json()["data"] == []


@pytest.mark.parametrize("raw", [b"\xff", "ÿ".encode()])
async def test_unescaped_bytes_in_a_path_are_refused(raw: bytes, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /v1/sessions/%b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % raw)
        async with asyncio.timeout(DEADLINE_S):
            status = await reader.readline()
            await reader.read()
        writer.close()
        assert status.split()[1] == b"400"


@pytest.mark.parametrize("body", [b'{"id": "\\ud800"}', b'{"metadata": {"a": "\\udc00"}}'])
async def test_a_lone_surrogate_is_refused(body: bytes, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.client.post("/v1/sessions", content=body)
        assert refusal(got) == (400, "invalid_json")
        listed = await gateway.client.get("/v1/sessions")
        assert (listed.status_code, listed.json()["data"]) == (200, [])


@pytest.mark.parametrize("name", ["\\xff\\xfe", "ÿþ", "é", "a/b", "%FF"])
async def test_an_id_is_the_same_program_on_every_route(name: str, engine: Any, weft: Any) -> None:
    path = "/v1/sessions/" + quote(name, safe="")
    async with engine() as stub, weft(stub) as gateway:
        for named in (
            {"headers": {"x-weft-program": name.encode()}},
            {"path": f"/p/{quote(name, safe='')}/v1/chat/completions"},
            {"body": {"session_id": name}},
        ):
            assert (await gateway.call(**named)).status_code == 200
        assert (await gateway.client.post("/v1/sessions", json={"id": name})).status_code == 200
        found = (await gateway.client.get(path)).json()
        assert (found["id"], found["calls"]) == (name, 3)
        listed = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert [session["id"] for session in listed] == [name]
        ended = await gateway.client.post("/finish_session", params={"session_id": name})
        assert ended.status_code == 200


async def test_a_too_long_id_has_the_same_error_code_on_every_route(engine: Any, weft: Any) -> None:
    name = "é" * 129
    async with engine() as stub, weft(stub) as gateway:
        answers = [
            await gateway.call(headers={"x-weft-program": name.encode()}),
            await gateway.call(f"/p/{quote(name)}/v1/chat/completions"),
            await gateway.call(body={"session_id": name}),
            await gateway.client.post("/v1/sessions", json={"id": name}),
            await gateway.client.get(f"/v1/sessions/{quote(name)}"),
            await gateway.client.post("/finish_session", params={"session_id": name}),
        ]
        assert [refusal(got) for got in answers] == [(400, "id_too_long")] * len(answers)
