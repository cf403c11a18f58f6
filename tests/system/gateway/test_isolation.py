"""A tenant attacks another tenant through two gateways on one Redis. The other's data is neither
read nor changed, and client input does not reach engines unchecked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest
from support.raw_http import ask
from support.redis_server import RedisServer
from support.turns import MESSAGES
from support.waiting import DEADLINE_S
from weft_gateway.programs.identity import tenant_of

KEYS = ("own", "mine", "theirs")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MINE = {"authorization": "Bearer mine"}
THEIRS = {"authorization": "Bearer theirs"}
SECRET = "the secret of mine"


class Vllm:
    """The script of an engine that stores responses like vLLM 0.32: by the `request_id` of the
    body, or by a random id. It does not know tenants.
    """

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
        answer = {"id": name, "said": body.get("input")}
        self.answers[name] = answer
        await wire.plain(answer)


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


async def respond(gateway: Any, tenant_headers: dict[str, str], **body: Any) -> Any:
    return await gateway.call("/v1/responses", body={"input": "x"} | body, headers=tenant_headers)


async def test_request_ids_of_clients_never_reach_an_engine(engine: Any, weft: Any) -> None:
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
        # A duplicate key, and an escaped one.
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


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "Redis"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_duplicate_response_id_does_not_expose_another_tenants_response(
    stream: bool, shared: bool, redis: RedisServer, engine: Any, weft: Any
) -> None:
    async def answer_with_same_id(wire: Any, request: Any) -> None:
        if request.method == "GET" or not stream:
            await wire.plain({"id": "resp_same", "said": SECRET})
            return
        response = {"id": "resp_same", "said": SECRET}
        event = {"type": "response.completed", "sequence_number": 0, "response": response}
        await wire.stream(
            b"event: response.completed\ndata: " + json.dumps(event).encode() + b"\n\n",
        )

    async with contextlib.AsyncExitStack() as stack:
        stub = await stack.enter_async_context(engine(script=answer_with_same_id))
        if shared:
            left = await stack.enter_async_context(weft(stub, redis_url=redis.url))
            right = await stack.enter_async_context(weft(stub, redis_url=redis.url))
        else:
            left = right = await stack.enter_async_context(weft(stub))
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


async def test_an_id_in_echoed_client_data_is_not_the_response_id(engine: Any, weft: Any) -> None:
    async def echo_metadata(wire: Any, request: Any) -> None:
        if request.method == "GET":
            await wire.plain({"said": SECRET})
            return
        response = {"metadata": request.json.get("metadata"), "id": "resp_own"}
        await wire.stream(
            *(
                f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()
                for kind in ("response.created", "response.completed")
                for event in [{"type": kind, "response": response}]
            )
        )

    async with engine(script=echo_metadata) as stub, weft(stub) as gateway:
        await respond(gateway, THEIRS, stream=True, metadata={"id": "resp_mine"})
        got = await gateway.client.get("/v1/responses/resp_mine", headers=THEIRS)
        assert code(got) == (404, "response_not_found")


LINES = "resp_a HTTP/1.1\r\nx-evil: 1\r\nx-rest: "
WRONG_IDS = [LINES, "resp_\u20ac", "resp_a b", "resp_a\x00", "resp_\u0661", "", "resp_" + "x" * 129]


@pytest.mark.parametrize("name", WRONG_IDS, ids=ascii)
async def test_a_response_with_an_invalid_id_is_not_stored_or_forwarded(
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


async def test_long_response_ids_are_not_stored(engine: Any, weft: Any) -> None:
    name = "resp_" + "x" * (1 << 20)

    async def script(wire: Any, request: Any) -> None:
        if request.json.get("stream"):
            event = b'data: {"type": "response.completed", "response": {"id": "%b"}}\n\n'
            await wire.stream(event % name.encode())
        else:
            await wire.plain({"id": name})

    async with engine(script=script) as stub, weft(stub) as gateway:
        for number in range(4):
            assert (await respond(gateway, MINE, stream=number % 2 == 0)).status_code == 200
        responses = gateway.parts.stores.chains
        assert (responses._answers, responses._owners) == ({}, {})


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
async def test_a_path_with_invalid_bytes_is_not_forwarded(
    path: bytes, engine: Any, weft: Any
) -> None:
    async with engine(script=Vllm()) as stub, weft(stub) as gateway:
        name = (await respond(gateway, MINE)).json()["id"].encode()
        head = b"GET %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer mine\r\n\r\n"
        answer = await ask(gateway.url, head % (path % name))
        assert answer.status in (400, 404)
        # The HTTP parser refuses bytes that are invalid in a URL, before a request exists.
        assert b"Invalid HTTP request" in answer.body or answer.json["error"]["code"]
        assert [request.method for request in stub.requests] == ["POST"]


async def test_a_valid_query_is_forwarded(engine: Any, weft: Any) -> None:
    async with engine(script=Vllm()) as stub, weft(stub) as gateway:
        name = (await respond(gateway, MINE)).json()["id"]
        target = f"/v1/responses/{name}?include=a%0D%0Ab&stream=false"
        assert (await gateway.client.get(target, headers=MINE)).status_code == 200
        assert stub.requests[-1].target == "/v1/responses"
        assert (await gateway.call("/v1/messages?beta=true")).status_code == 200
        assert stub.requests[-1].target == "/v1/messages?beta=true"
        for path in ("/v1/chat/completions", "/v1/messages"):
            answer = await ask(
                gateway.url,
                b"POST %b?a=%%zz HTTP/1.1\r\nhost: x\r\nauthorization: Bearer own\r\n"
                b"content-length: 2\r\n\r\n{}" % path.encode(),
            )
            assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
        assert stub.requests[-1].target == "/v1/messages?beta=true"


async def test_an_unknown_response_is_not_continued_during_an_outage(
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
        # A gateway continues with the responses that it knows locally.
        got = await respond(left, MINE, previous_response_id=mine)
        assert SECRET in str(got.json()["said"])
        assert (await left.client.get(f"/v1/responses/{mine}", headers=MINE)).status_code == 200
        assert code(await respond(right, MINE, previous_response_id=mine))[0] == 503


def spellings(name: str) -> list[str]:
    """Return spellings of another tenant's id in a path."""
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


async def test_other_spellings_of_an_id_expose_nothing_of_another_tenant(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=Vllm(), canned={"/weft/kv": {}}) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        named = {**MINE, "x-session-id": "run-mine", "x-request-id": "request-mine"}
        made = await left.call("/v1/responses", body={"input": SECRET}, headers=named)
        await left.call(body={"messages": MESSAGES}, headers=named)
        chat = {"model": "tiny", "messages": MESSAGES, "session_id": "run-mine"}
        prefill = (await left.client.post("/v1/hints/prefill", json=chat, headers=MINE)).json()
        answer = made.json()["id"]

        async def snapshot() -> Any:
            session = (await left.client.get("/v1/sessions/run-mine", headers=MINE)).json()
            receipt = (await left.client.get("/v1/receipts/request-mine", headers=MINE)).json()
            handle = await left.client.get(f"/v1/hints/prefill/{prefill['id']}", headers=MINE)
            stored = await left.client.get(f"/v1/responses/{answer}", headers=MINE)
            return session["calls"], receipt["request_id"], handle.json()["id"], stored.json()["id"]

        before = await snapshot()
        for gateway in (left, right):
            client = gateway.client
            for session in spellings("run-mine"):
                for method, part in (
                    ("GET", ""),
                    ("GET", "/story"),
                    ("GET", "/events"),
                    ("DELETE", ""),
                ):
                    path = f"/v1/sessions/{session}{part}"
                    # The timeout ends the test if an event stream opens.
                    async with asyncio.timeout(DEADLINE_S):
                        got = await client.request(method, path, headers=THEIRS)
                    assert got.status_code in (400, 404), (method, path)
                    assert got.json()["error"]["code"]
                got = await client.post(f"/finish_session?session_id={session}", headers=THEIRS)
                assert got.status_code in (400, 404)
            for request in spellings("request-mine"):
                got = await client.get(f"/v1/receipts/{request}", headers=THEIRS)
                assert got.status_code == 404
            for handle in spellings(prefill["id"]):
                for method in ("GET", "DELETE"):
                    path = f"/v1/hints/prefill/{handle}"
                    got = await client.request(method, path, headers=THEIRS)
                    assert got.status_code == 404
                path = f"/v1/hints/prefill/{handle}/extend"
                body = {"model": "tiny", "messages": MESSAGES}
                got = await client.post(path, json=body, headers=THEIRS)
                assert got.status_code == 404
            for response in spellings(answer):
                for method, part in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
                    path = f"/v1/responses/{response}{part}"
                    got = await client.request(method, path, headers=THEIRS)
                    assert got.status_code in (404, 405)
            listed = await client.get("/v1/sessions?after=%00", headers=THEIRS)
            assert listed.json()["data"] == []
        assert await snapshot() == before


async def test_equal_messages_under_different_keys_are_different_programs(
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
            for name, tenant_headers in (("mine", MINE), ("theirs", THEIRS)):
                for gateway in (left, right):
                    got = await gateway.call(body={"messages": turns}, headers=tenant_headers)
                    programs[name].add(got.headers["x-weft-program"])
            turns = [
                *turns,
                {"role": "assistant", "content": f"An answer of some length, number {number}."},
                {"role": "user", "content": f"And then, after number {number}?"},
            ]
        assert not programs["mine"] & programs["theirs"]
        salts = {request.json["cache_salt"] for request in stub.requests}
        assert len(salts) == 2
