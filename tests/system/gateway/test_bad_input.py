"""Forged ids, ids of other tenants, similar ids and too many ids give a clear error or a documented
result. Other tenants' data is neither read nor changed. `weft` checks the process table.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.redis_server import RedisServer
from support.turns import MESSAGES
from support.waiting import DEADLINE_S

KEYS = ("own", "mine", "theirs")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MINE = {"authorization": "Bearer mine"}
THEIRS = {"authorization": "Bearer theirs"}


@pytest.fixture(params=["memory", "redis"])
def table_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Yield the settings for each kind of table."""
    if request.param == "memory":
        yield {}
        return
    server = RedisServer(tmp_path)
    yield {"redis_url": server.url, "redis_timeout_s": 20}
    server.kill()


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


async def answer_with_one_id(wire: Any, request: Any) -> None:
    """Answer every call with the same response id."""
    await wire.plain({"id": "resp_secret", "object": "response", "choices": []})


async def test_a_tenants_objects_do_not_exist_for_another_tenant(
    table_settings: Any, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=answer_with_one_id, canned={"/weft/kv": {}}) as stub,
        weft(stub, **table_settings) as gateway,
    ):
        client = gateway.client
        named = {"x-session-id": "run", "x-request-id": "mine-1"}
        await gateway.call(body={"messages": MESSAGES}, headers={**MINE, **named})
        await gateway.call("/v1/responses", body={"input": "a"}, headers={**MINE, **named})
        prefill = {"model": "tiny", "messages": MESSAGES[:2], "session_id": "run"}
        handle = (await client.post("/v1/hints/prefill", json=prefill, headers=MINE)).json()["id"]
        tags = {"session_id": "run", "tags": [{"message": 1, "tag": "SYSTEM_PROMPT"}]}
        assert (await client.post("/v1/hints/tags", json=tags, headers=MINE)).status_code == 200

        async def mine() -> Any:
            session = (await client.get("/v1/sessions/run", headers=MINE)).json()
            trace = (await client.get("/v1/sessions/run/story", headers=MINE)).json()
            assert "tags" in session["told"]
            return session, trace, len(gateway.parts.prefills)

        async with asyncio.timeout(DEADLINE_S):
            while (await client.get(f"/v1/hints/prefill/{handle}", headers=MINE)).json()[
                "status"
            ] == "running":
                pass
        before, sent, other_requests = await mine(), len(stub.requests), len(stub.other)
        priority = {"session_id": "run", "priority": 2, "retain_s": 60}
        turn = {"model": "tiny", "messages": MESSAGES}
        refused = {
            "session_not_found": [
                await client.get("/v1/sessions/run", headers=THEIRS),
                await client.delete("/v1/sessions/run", headers=THEIRS),
                await client.post("/finish_session?session_id=run", headers=THEIRS),
                await client.get("/v1/sessions/run/story", headers=THEIRS),
                await client.post("/v1/hints/priority", json=priority, headers=THEIRS),
            ],
            "prefill_not_found": [
                await client.get(f"/v1/hints/prefill/{handle}", headers=THEIRS),
                await client.delete(f"/v1/hints/prefill/{handle}", headers=THEIRS),
                await client.post(f"/v1/hints/prefill/{handle}/extend", json=turn, headers=THEIRS),
                await client.post(
                    f"/p/run/v1/hints/prefill/{handle}/extend", json=turn, headers=THEIRS
                ),
            ],
            "receipt_not_found": [await client.get("/v1/receipts/mine-1", headers=THEIRS)],
        }
        for expected, responses in refused.items():
            assert [code(got) for got in responses] == [(404, expected)] * len(responses)
            assert not any(
                b"mine" in got.content and b"receipts" in got.content for got in responses
            )
        continued = await gateway.call(
            "/v1/responses", body={"previous_response_id": "resp_secret"}, headers=THEIRS
        )
        assert code(continued) == (400, "previous_response_not_found")
        for method in ("GET", "DELETE"):
            got = await client.request(method, "/v1/responses/resp_secret", headers=THEIRS)
            assert got.status_code == 404
        assert (await client.get("/v1/sessions", headers=THEIRS)).json()["data"] == []
        # Tags in advance of a session are accepted: they create a session of the calling tenant.
        for accepted in (tags | {"tags": []}, tags):
            got = await client.post("/v1/hints/tags", json=accepted, headers=THEIRS)
            assert got.status_code == 200
        assert (len(stub.requests), len(stub.other)) == (sent, other_requests)
        assert await mine() == before


async def test_a_call_with_another_tenants_id_belongs_to_the_callers_own_program(
    table_settings: Any, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub, **table_settings) as gateway:
        for _ in range(3):
            await gateway.call(headers={**MINE, "x-session-id": "run"})
        await gateway.call("/p/run/v1/chat/completions", headers=THEIRS)
        await gateway.call(headers={**THEIRS, "x-session-id": "run"})
        counts = [
            (await gateway.client.get("/v1/sessions/run", headers=tenant)).json()["calls"]
            for tenant in (MINE, THEIRS)
        ]
        assert counts == [3, 2]
        digests = {request.json["vllm_xargs"]["weft_program"] for request in stub.requests}
        assert len(digests) == 2
        assert (await gateway.client.delete("/v1/sessions/run", headers=THEIRS)).status_code == 200
        session = await gateway.client.get("/v1/sessions/run", headers=MINE)
        assert (session.status_code, session.json()["calls"]) == (200, 3)


async def test_a_listener_receives_no_events_of_another_tenants_session_with_the_same_name(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        listeners = gateway.parts.listeners
        path = "/v1/sessions/run/events"
        await gateway.client.post("/v1/sessions", json={"id": "run"}, headers=THEIRS)
        async with gateway.client.stream("GET", path, headers=THEIRS) as events:
            assert await anext(events.aiter_lines()) == ": listening"
            (key,) = listeners._of
            await gateway.call(headers={**MINE, "x-session-id": "run"})
            (mine,) = (await gateway.client.get("/v1/sessions", headers=MINE)).json()["data"]
            assert key.program == mine["id"]
            assert not any(k != key for k in listeners._of)
            theirs = (await gateway.client.get("/v1/sessions/run", headers=THEIRS)).json()
            assert theirs["calls"] == 0
        await until(lambda: not listeners._of)


@pytest.mark.parametrize(
    "forged",
    ["sess-000000000000000000000000", "*", "public/run", "../run", "run\n", "{weft}:totals", "p:x"],
)
async def test_a_forged_id_gives_session_not_found(
    forged: str, table_settings: Any, engine: Any, weft: Any
) -> None:
    path = "/v1/sessions/" + quote(forged, safe="")
    async with engine() as stub, weft(stub, **table_settings) as gateway:
        await gateway.call(headers={"x-session-id": "run"})
        for got in (
            await gateway.client.get(path),
            await gateway.client.delete(path),
            await gateway.client.get(f"{path}/story"),
        ):
            assert code(got) == (404, "session_not_found")
        (only,) = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert (only["id"], only["calls"]) == ("run", 1)


SIMILAR = [
    "Run",
    "run",
    "RUN",
    "run\n",
    "r un",
    "\u00a0run",
    "caf\u00e9",
    "cafe\u0301",
    "\u212b",
    "\u00c5",
]


async def test_similar_ids_are_different_programs(
    table_settings: Any, engine: Any, weft: Any
) -> None:
    assert unicodedata.normalize("NFC", SIMILAR[7]) == SIMILAR[6]
    async with engine() as stub, weft(stub, **table_settings) as gateway:
        for number, name in enumerate(SIMILAR, start=1):
            for _ in range(number):
                assert (await gateway.call(body={"session_id": name})).status_code == 200
            path = f"/p/{quote(name, safe='')}/v1/chat/completions"
            assert (await gateway.call(path)).status_code == 200
        for number, name in enumerate(SIMILAR, start=1):
            found = (await gateway.client.get(f"/v1/sessions/{quote(name, safe='')}")).json()
            assert (found["id"], found["calls"]) == (name, number + 1)
        listed = (await gateway.client.get("/v1/sessions?limit=100")).json()["data"]
        assert [s["id"] for s in listed] == sorted(SIMILAR, key=str.encode)
        deleted = await gateway.client.delete("/v1/sessions/RUN")
        assert deleted.json()["id"] == "RUN"
        assert len((await gateway.client.get("/v1/sessions?limit=100")).json()["data"]) == 9


async def test_sessions_over_the_limit_evict_the_tenants_least_recently_active_ones(
    table_settings: Any, engine: Any, weft: Any
) -> None:
    async with (
        engine() as stub,
        weft(stub, max_programs_per_tenant=20, **table_settings) as gateway,
    ):
        assert (await gateway.call(body={"session_id": "s"}, headers=THEIRS)).status_code == 200
        for number in range(50):
            got = await gateway.call(body={"session_id": f"s{number:03}"}, headers=MINE)
            assert got.status_code == 200
            if number % 3 == 0:
                await gateway.client.post("/v1/sessions", json={"id": "kept"}, headers=MINE)
        page = await gateway.client.get("/v1/sessions?limit=100", headers=MINE)
        alive = [each for each in page.json()["data"] if each["status"] != "finished"]
        names = [session["id"] for session in alive]
        assert names == ["kept", *(f"s{number:03}" for number in range(31, 50))]
        counts = await gateway.parts.table.counts()
        assert counts.created - counts.ended == counts.alive == 21
        theirs = await gateway.client.get("/v1/sessions/s", headers=THEIRS)
        assert theirs.json()["calls"] == 1
