"""Isolation of tenants beyond their data: normalized ids, hidden replica addresses, and limits that
evict only a tenant's own prefills and listeners.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from support.raw_http import ask
from support.turns import MESSAGES
from support.waiting import DEADLINE_S
from weft_gateway.telemetry.listeners import Listeners

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MINE = {"authorization": "Bearer mine"}
THEIRS = {"authorization": "Bearer theirs"}


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


@pytest.mark.parametrize("header", [b"q ", b" q", b"\tq\t ", b"q"])
async def test_whitespace_around_an_id_is_ignored(header: bytes, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        body = b'{"model": "tiny", "messages": []}'
        answer = await ask(
            gateway.url,
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-session-id:%b\r\n"
            b"content-length: %d\r\n\r\n%b" % (header, len(body), body),
        )
        assert answer.status == 200
        text = header.decode()
        path = quote(text, safe="")
        assert (await gateway.call(body={"session_id": text})).status_code == 200
        assert (await gateway.call(f"/p/{path}/v1/chat/completions")).status_code == 200
        assert (await gateway.client.get(f"/v1/sessions/{path}")).json()["calls"] == 3
        listed = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert [session["id"] for session in listed] == ["q"]
        ended = await gateway.client.post("/finish_session", params={"session_id": text})
        assert ended.status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_replica_addresses_are_visible_only_to_administrators(
    path: str, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub, "http://127.0.0.1:9", admin_key="adm") as gateway:
        for headers in ({}, MINE):
            got = await gateway.client.get(path, headers=headers)
            assert "127.0.0.1" not in got.text
            assert [replica["name"] for replica in got.json()["replicas"]] == ["r0", "r1"]
        got = await gateway.client.get(path, headers={"authorization": "Bearer adm"})
        urls = [replica["url"] for replica in got.json()["replicas"]]
        assert urls == [stub.url, "http://127.0.0.1:9"]
        assert got.json()["replicas"][1]["last_error"]
    async with engine() as stub, weft(stub) as gateway:
        # Without an admin key, local clients are administrators.
        assert stub.url in (await gateway.client.get(path)).text


async def test_prefills_are_limited_per_tenant(engine: Any, weft: Any) -> None:
    chat = {"model": "tiny", "messages": MESSAGES}

    async def begin(gateway: Any, key: str) -> Any:
        headers = {"authorization": f"Bearer {key}"}
        return await gateway.client.post("/v1/hints/prefill", json=chat, headers=headers)

    async with (
        engine(canned={"/weft/kv": {}}) as stub,
        weft(stub, prefills=8, prefills_per_tenant=4, api_keys="quiet,a,b,c,late") as gateway,
    ):
        quiet = (await begin(gateway, "quiet")).json()["id"]
        for key in ("a", "b", "c"):
            statuses = [(await begin(gateway, key)).status_code for _ in range(4)]
            assert statuses == [201] * 4
            if key == "a":
                assert code(await begin(gateway, key)) == (429, "too_many_prefills")
        # The store is full, but a tenant without prefills still gets a place.
        late = await begin(gateway, "late")
        assert late.status_code == 201
        for key, name in (("quiet", quiet), ("late", late.json()["id"])):
            headers = {"authorization": f"Bearer {key}"}
            got = await gateway.client.get(f"/v1/hints/prefill/{name}", headers=headers)
            assert got.status_code == 200
        assert len(gateway.parts.prefills) == 8


async def test_evicted_prefills_are_released_in_the_engine(
    engine: Any, weft: Any, until: Any
) -> None:
    chat = {"model": "tiny", "messages": MESSAGES}
    canned = {"/weft/kv": {}}
    async with engine(canned=canned) as stub, weft(stub, prefills=4) as gateway:
        for number in range(20):
            body = {**chat, "session_id": f"run-{number}"}
            made = await gateway.client.post("/v1/hints/prefill", json=body)
            assert made.status_code == 201
        await until(lambda: len(stub.requests) == 20)
        # The engine receives a release for each evicted prefill.
        commands = lambda: [r.json for r in stub.other if r.target == "/weft/kv"]  # noqa: E731
        await until(lambda: [t["action"] for t in commands()].count("give_up") == 16)
        assert len({t["program"] for t in commands()}) == 16
        assert len(gateway.parts.prefills) == 4


async def test_listeners_need_an_existing_session_and_are_limited_per_tenant(
    engine: Any, weft: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By session, by tenant, and in all.
    monkeypatch.setattr(Listeners.__init__, "__defaults__", (2, 3, 4, None))
    async with engine() as stub, weft(stub, api_keys="mine,theirs") as gateway:
        client, listeners = gateway.client, gateway.parts.listeners

        async def listen(session: str, tenant: dict[str, str]) -> tuple[int, str, Any]:
            request = client.build_request("GET", f"/v1/sessions/{session}/events", headers=tenant)
            got = await client.send(request, stream=True)
            if got.status_code != 200:
                await got.aread()
                return got.status_code, got.json()["error"]["code"], None
            lines = got.aiter_lines()
            assert await anext(lines) == ": listening"
            return 200, "", lines

        assert (await listen("none", MINE))[:2] == (404, "session_not_found")
        for tenant in (MINE, THEIRS):
            for session in ("a", "b"):
                await client.post("/v1/sessions", json={"id": session}, headers=tenant)
        streams = [await listen("a", MINE), await listen("a", MINE)]
        assert [status for status, _, _ in streams] == [200, 200]
        assert (await listen("a", MINE))[:2] == (429, "too_many_listeners")
        streams.append(await listen("b", MINE))
        assert (await listen("b", MINE))[:2] == (429, "too_many_listeners")
        assert (await listen("none", MINE))[0] == 404
        # A new listener of another tenant evicts the oldest stream of the tenant with the most.
        streams += [await listen("a", THEIRS), await listen("b", THEIRS)]
        assert [status for status, _, _ in streams] == [200] * 5
        async with asyncio.timeout(DEADLINE_S):
            assert [line async for line in streams[0][2] if line] == []
        assert sum(map(len, listeners._of.values())) == 4
        for _, _, lines in streams:
            await lines.aclose()
        await until(lambda: not listeners._of)
