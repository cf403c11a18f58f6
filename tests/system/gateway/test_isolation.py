"""One tenant attacks, another one has something: nothing of it is read or changed, through two
gateways on one Redis, and what engines see of a client's is checked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.raw_http import ask
from support.redis_server import RedisServer
from support.turns import MESSAGES
from weft_gateway.programs.identity import tenant_of

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MINE = {"authorization": "Bearer mine"}
THEIRS = {"authorization": "Bearer theirs"}
SECRET = "the secret of mine"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


class Vllm:
    """The script of an engine that stores answers as vLLM 0.32 does: under the body's `request_id`,
    a random id where there is none. It knows no tenants."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self._numbers = count()

    async def __call__(self, wire: Any, request: Any) -> None:
        path, _, _ = request.target.partition("?")
        if path.startswith("/v1/responses/"):
            found = self.answers.get(path.split("/")[3])
            await wire.plain(found or {"error": {}}, "200 OK" if found else "404 Not Found")
            return
        body = request.json
        name = body.get("request_id") or f"resp_{next(self._numbers):032x}"
        before = self.answers.get(body.get("previous_response_id") or "")
        answer = {"id": name, "said": body.get("input"), "after": before}
        self.answers[name] = answer
        await wire.plain(answer)


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


async def respond(gateway: Any, who: dict[str, str], **body: Any) -> Any:
    return await gateway.call("/v1/responses", body={"input": "x"} | body, headers=who)


async def test_the_id_of_a_clients_choice_never_reaches_an_engine(engine: Any, weft: Any) -> None:
    async with engine(script=Vllm()) as stub, weft(stub) as gateway:
        mine = (await respond(gateway, MINE, input=SECRET)).json()["id"]
        for path in ("/v1/responses", "/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            got = await gateway.call(
                path,
                body={"request_id": mine, "input": "y"},
                headers={**THEIRS, "x-request-id": mine},
            )
            assert got.status_code == 200
            assert got.json()["id"] != mine
            seen = stub.requests[-1]
            assert "request_id" not in seen.json
            assert mine not in json.dumps(seen.headers)
            assert re.fullmatch(r"call-[0-9a-f]+-[0-9a-f]+", seen.headers["x-request-id"])
        # A key that is there twice, and one that is escaped.
        for raw in (
            b'{"model": "tiny", "request_id": "%b", "input": "y", "request_id": null}',
            b'{"model": "tiny", "request\\u005fid": "%b", "input": "y"}',
        ):
            content = raw % mine.encode()
            await gateway.client.post("/v1/responses", content=content, headers=THEIRS)
            assert mine.encode() not in stub.requests[-1].raw
        got = await gateway.client.get(f"/v1/responses/{mine}", headers=THEIRS)
        assert code(got) == (404, "response_not_found")
        got = await gateway.client.get(f"/v1/responses/{mine}", headers=MINE)
        assert got.json()["said"] == SECRET


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_gives_an_id_twice_gives_nobody_anothers_answer(
    stream: bool, redis: RedisServer, engine: Any, weft: Any
) -> None:
    async def same(wire: Any, request: Any) -> None:
        if request.method == "GET" or not stream:
            await wire.plain({"id": "resp_same", "said": SECRET})
            return
        event = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_same"}}
        await wire.stream(
            b"event: response.created\ndata: " + json.dumps(event).encode() + b"\n\n",
            b"event: response.completed\ndata: {}\n\n",
        )

    async with (
        engine(script=same) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        await respond(left, MINE, stream=stream)
        for gateway in (left, right):
            await respond(gateway, THEIRS, stream=stream)
        for gateway in (left, right, left):
            got = await gateway.client.get("/v1/responses/resp_same", headers=THEIRS)
            assert code(got) == (404, "response_not_found")
            got = await respond(gateway, THEIRS, previous_response_id="resp_same")
            assert code(got) == (400, "previous_response_not_found")
            got = await gateway.client.get("/v1/responses/resp_same", headers=MINE)
            assert got.json()["said"] == SECRET


async def test_what_a_client_sent_is_not_taken_for_the_id_of_its_answer(
    engine: Any, weft: Any
) -> None:
    async def repeats(wire: Any, request: Any) -> None:
        if request.method == "GET":
            await wire.plain({"said": SECRET})
            return
        response = {"metadata": request.json.get("metadata"), "id": "resp_own"}
        event = {"type": "response.created", "response": response}
        await wire.stream(
            b"event: response.created\ndata: " + json.dumps(event).encode() + b"\n\n",
            b"event: response.completed\ndata: {}\n\n",
        )

    async with engine(script=repeats) as stub, weft(stub) as gateway:
        await respond(gateway, THEIRS, stream=True, metadata={"id": "resp_mine"})
        got = await gateway.client.get("/v1/responses/resp_mine", headers=THEIRS)
        assert code(got) == (404, "response_not_found")


LINES = "resp_a HTTP/1.1\r\nx-evil: 1\r\nx-rest: "
WRONG_IDS = [LINES, "resp_\u20ac", "resp_a b", "resp_a\x00", "resp_\u0661", "", "resp_" + "x" * 129]


@pytest.mark.parametrize("name", WRONG_IDS, ids=ascii)
async def test_an_answer_with_another_sort_of_id_is_not_remembered_and_not_asked_for(
    name: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"id": name})

    async with engine(script=script) as stub, weft(stub) as gateway:
        assert (await respond(gateway, MINE)).status_code == 200
        asked = len(stub.requests)
        for part in ("", "/cancel", "/input_items"):
            path = f"/v1/responses/{quote(name, safe='')}{part}"
            method = "POST" if part == "/cancel" else "GET"
            got = await gateway.client.request(method, path, headers=MINE)
            assert got.status_code in (404, 405)
        got = await respond(gateway, MINE, previous_response_id=name)
        assert code(got) == (400, "previous_response_not_found")
        assert len(stub.requests) == asked


async def test_long_ids_of_answers_are_not_kept(engine: Any, weft: Any) -> None:
    name = "resp_" + "x" * (1 << 20)

    async def script(wire: Any, request: Any) -> None:
        if request.json.get("stream"):
            event = b'data: {"type": "response.created", "response": {"id": "%b"}}\n\n'
            await wire.stream(event % name.encode(), b"event: response.completed\ndata: {}\n\n")
        else:
            await wire.plain({"id": name})

    async with engine(script=script) as stub, weft(stub) as gateway:
        for number in range(4):
            assert (await respond(gateway, MINE, stream=number % 2 == 0)).status_code == 200
        chains = gateway.parts.stores.chains
        assert (chains._answers, chains._owners) == ({}, {})


PATHS = [
    b"/v1/responses/%b%%0d%%0ax-evil:%%201",
    b"/v1/responses/%b%%20HTTP/1.1%%0d%%0ax-evil:1%%0d%%0a",
    b"/v1%%2fresponses%%2f%b",
    b"/v1/responses/%b%%2fcancel",
    b"/v1/responses/%b%%00",
    b"/v1/responses/./%b",
    b"/v1/responses//%b",
    b"/v1/responses/%b?a=%%0d%%0ab\xff",
    b'/v1/responses/%b?"',
    b"/v1/responses/%b?a=%%",
    b"//v1/responses/%b",
    b"/p/x/v1/responses/%b%%0a",
]


@pytest.mark.parametrize("path", PATHS, ids=ascii)
async def test_a_path_of_other_bytes_is_not_forwarded(path: bytes, engine: Any, weft: Any) -> None:
    async with engine(script=Vllm()) as stub, weft(stub) as gateway:
        name = (await respond(gateway, MINE)).json()["id"].encode()
        head = b"GET %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer mine\r\n\r\n"
        answer = await ask(gateway.url, head % (path % name))
        assert answer.status in (400, 404)
        # Bytes that are in no URL are refused by the parser, before there is a request.
        assert b"Invalid HTTP request" in answer.body or answer.json["error"]["code"]
        assert [request.method for request in stub.requests] == ["POST"]


async def test_a_query_goes_on_where_a_url_may_have_it(engine: Any, weft: Any) -> None:
    async with engine(script=Vllm()) as stub, weft(stub) as gateway:
        name = (await respond(gateway, MINE)).json()["id"]
        target = f"/v1/responses/{name}?include=a%0D%0Ab&stream=false"
        assert (await gateway.client.get(target, headers=MINE)).status_code == 200
        assert stub.requests[-1].target == target
        assert (await gateway.call("/v1/messages?beta=true")).status_code == 200
        assert stub.requests[-1].target == "/v1/messages?beta=true"
        for path in ("/v1/chat/completions", "/v1/messages"):
            answer = await ask(
                gateway.url,
                b"POST %b?a=%%zz HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
                % path.encode(),
            )
            assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_head")
        assert stub.requests[-1].target == "/v1/messages?beta=true"


async def test_without_redis_an_answer_that_may_be_anothers_is_not_continued(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=Vllm()) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        mine = (await respond(left, MINE, input=SECRET)).json()["id"]
        redis.kill()
        asked = len(stub.requests)
        for gateway in (left, right):
            got = await respond(gateway, THEIRS, previous_response_id=mine)
            assert code(got) == (503, "table_unavailable")
            assert got.headers["retry-after"]
            for method, part in (
                ("GET", ""),
                ("DELETE", ""),
                ("POST", "/cancel"),
                ("GET", "/input_items"),
            ):
                path = f"/v1/responses/{mine}{part}"
                got = await gateway.client.request(method, path, headers=THEIRS)
                assert code(got) == (503, "table_unavailable")
        assert len(stub.requests) == asked
        # What a gateway knows by itself it goes on with.
        got = await respond(left, MINE, previous_response_id=mine)
        assert got.json()["after"]["said"] == SECRET
        assert (await left.client.get(f"/v1/responses/{mine}", headers=MINE)).status_code == 200
        assert code(await respond(right, MINE, previous_response_id=mine))[0] == 503


def disguises(name: str) -> list[str]:
    """Ways to write another tenant's id in a path."""
    tenant = tenant_of("mine")
    encoded = quote(name, safe="")
    return [
        encoded,
        "".join(f"%{byte:02x}" for byte in name.encode()),
        "".join(f"%25{byte:02x}" for byte in name.encode()),
        "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in name),
        quote(f"{tenant}/{name}", safe=""),
        quote(f"../{tenant}/{name}", safe=""),
        f"..%2f{tenant}%2f{encoded}",
        f"{encoded}%00",
        f"%20{encoded}%09",
        f"%C0%AE%C0%AE/{encoded}",
        f"{encoded};a=b",
        f"{encoded}%23",
        f"\u200b{encoded}",
    ]


async def test_nothing_of_another_tenant_is_read_however_its_ids_are_written(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=Vllm(), asides={"/weft/kv": {}}) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        named = {**MINE, "x-session-id": "run-mine", "x-request-id": "request-mine"}
        made = await left.call("/v1/responses", body={"input": SECRET}, headers=named)
        await left.call(body={"messages": MESSAGES}, headers=named)
        chat = {"model": "tiny", "messages": MESSAGES, "session_id": "run-mine"}
        prefill = (await left.client.post("/v1/hints/prefill", json=chat, headers=MINE)).json()
        answer = made.json()["id"]

        async def look() -> Any:
            session = (await left.client.get("/v1/sessions/run-mine", headers=MINE)).json()
            receipt = (await left.client.get("/v1/receipts/request-mine", headers=MINE)).json()
            handle = await left.client.get(f"/v1/hints/prefill/{prefill['id']}", headers=MINE)
            stored = await left.client.get(f"/v1/responses/{answer}", headers=MINE)
            return session["calls"], receipt["request_id"], handle.json()["id"], stored.json()["id"]

        before = await look()
        for gateway in (left, right):
            client = gateway.client
            for session in disguises("run-mine"):
                for method, part in (
                    ("GET", ""),
                    ("GET", "/story"),
                    ("GET", "/events"),
                    ("DELETE", ""),
                ):
                    path = f"/v1/sessions/{session}{part}"
                    # A stream of events would have no end.
                    async with asyncio.timeout(10):
                        got = await client.request(method, path, headers=THEIRS)
                    assert got.status_code in (400, 404), (method, path)
                    assert got.json()["error"]["code"]
                got = await client.post(f"/finish_session?session_id={session}", headers=THEIRS)
                assert got.status_code in (400, 404)
            for request in disguises("request-mine"):
                got = await client.get(f"/v1/receipts/{request}", headers=THEIRS)
                assert got.status_code == 404
            for handle in disguises(prefill["id"]):
                for method in ("GET", "DELETE"):
                    path = f"/v1/hints/prefill/{handle}"
                    got = await client.request(method, path, headers=THEIRS)
                    assert got.status_code == 404
                path = f"/v1/hints/prefill/{handle}/extend"
                body = {"model": "tiny", "messages": MESSAGES}
                got = await client.post(path, json=body, headers=THEIRS)
                assert got.status_code == 404
            for response in disguises(answer):
                for method, part in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
                    path = f"/v1/responses/{response}{part}"
                    got = await client.request(method, path, headers=THEIRS)
                    assert got.status_code in (404, 405)
            listed = await client.get("/v1/sessions?after=%00", headers=THEIRS)
            assert listed.json()["data"] == []
        assert await look() == before


async def test_the_same_messages_under_another_key_are_another_program(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine() as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        turns: list[dict[str, str]] = [{"role": "user", "content": SECRET * 20}]
        programs: dict[str, set[str]] = {"mine": set(), "theirs": set()}
        for number in range(3):
            for name, who in (("mine", MINE), ("theirs", THEIRS)):
                for gateway in (left, right):
                    got = await gateway.call(body={"messages": turns}, headers=who)
                    programs[name].add(got.headers["x-weft-program"])
            turns = [
                *turns,
                {"role": "assistant", "content": f"An answer of some length, number {number}."},
                {"role": "user", "content": f"And then, after number {number}?"},
            ]
        assert not programs["mine"] & programs["theirs"]
        salts = {request.json["cache_salt"] for request in stub.requests}
        assert len(salts) == 2
