"""One rule for ids, whichever way they come: UTF-8 text of at most 256 bytes, each its own."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

NO_TEXT = [b"\xff\xfe", b"\xc3", b"a\xed\xa0\x80b"]


def refusal(got: Any) -> tuple[int, str]:
    assert got.headers["content-type"] == "application/json"
    return got.status_code, got.json()["error"]["code"]


@pytest.mark.parametrize("raw", NO_TEXT, ids=repr)
async def test_bytes_that_are_no_text_are_refused_on_every_way_in(
    raw: bytes, engine: Any, weft: Any
) -> None:
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
async def test_a_path_whose_bytes_are_not_escaped_names_no_other_program(
    raw: bytes, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /v1/sessions/%b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % raw)
        async with asyncio.timeout(10):
            status = await reader.readline()
            await reader.read()
        writer.close()
        assert status.split()[1] == b"400"


@pytest.mark.parametrize("body", [b'{"id": "\\ud800"}', b'{"metadata": {"a": "\\udc00"}}'])
async def test_half_a_surrogate_pair_is_no_text(body: bytes, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.client.post("/v1/sessions", content=body)
        assert refusal(got) == (400, "invalid_json")
        listed = await gateway.client.get("/v1/sessions")
        assert (listed.status_code, listed.json()["data"]) == (200, [])


@pytest.mark.parametrize("name", ["\\xff\\xfe", "ÿþ", "é", "a/b", "%FF"])
async def test_one_id_is_one_program_on_every_way_in(name: str, engine: Any, weft: Any) -> None:
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


async def test_an_id_that_is_too_long_has_one_code(engine: Any, weft: Any) -> None:
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
