"""Successful calls: the request at the engine, the answer at the client, and the process table."""

import json
from typing import Any

import pytest
from weft_engine.wire import REPORT_COMMENT, CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]

PATHS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
]


def report(request: Any, **values: Any) -> str:
    return CallReport(call=request.headers["x-weft-call"], **values).to_json()


@pytest.mark.parametrize("path", PATHS)
async def test_a_plain_answer_passes_unchanged(path: str, engine: Any, weft: Any) -> None:
    answer = b'{"id" : "resp_1",\n "u":"\\u00e9", "n": 1.50}'

    async def script(wire: Any, request: Any) -> None:
        await wire.plain(answer, headers={"x-vllm-engine": "yes"})

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(path, params={"beta": "true"})
        assert got.status_code == 200
        assert got.content == answer
        assert got.headers["x-vllm-engine"] == "yes"
        assert got.headers["x-weft-replica"] == "r0"
        assert got.headers["x-weft-program"]
        assert got.headers["x-request-id"].startswith("req-")
        assert stub.requests[0].target == f"{path}?beta=true"


async def test_the_engine_gets_the_context_without_client_credentials(
    engine: Any, weft: Any
) -> None:
    async with (
        engine() as stub,
        weft(stub, replica_api_key="sk-replica", api_keys="sk-client") as gateway,
    ):
        headers = {
            "authorization": "Bearer sk-client",
            "cookie": "a=b",
            "x-weft-program": "run-1",
            "x-request-id": "mine",
        }
        got = await gateway.call(headers=headers)
        assert got.headers["x-request-id"] == "mine"
        assert got.headers["x-weft-program"] == "run-1"
        seen = stub.requests[0]
        assert seen.headers["authorization"] == "Bearer sk-replica"
        # Ids from clients are not unique, but an engine uses this header as its request id.
        assert seen.headers["x-request-id"] == seen.headers["x-weft-call"]
        assert "cookie" not in seen.headers
        assert "sk-client" not in json.dumps(seen.headers) + seen.raw.decode()
        xargs = seen.json["vllm_xargs"]
        assert xargs["weft_call"] == seen.headers["x-weft-call"]
        assert xargs["weft_service"] == 0.0
        assert len(seen.json["cache_salt"]) == 64


async def test_clients_of_a_gateway_without_keys_are_one_tenant(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        placeholders = [{}, {"authorization": "Bearer none"}, {"x-api-key": "sk-any"}]
        for number, headers in enumerate(placeholders):
            await gateway.call(headers={**headers, "x-weft-program": f"run-{number}"})
        for headers in placeholders:
            listed = await gateway.client.get("/v1/sessions", headers=headers)
            assert [one["id"] for one in listed.json()["data"]] == ["run-0", "run-1", "run-2"]
        assert all("cache_salt" not in request.json for request in stub.requests)


async def test_a_stock_server_gets_the_client_body_unchanged(engine: Any, weft: Any) -> None:
    async with engine(weft=False, models=()) as stub, weft(stub) as gateway:
        await gateway.client.post("/v1/completions", content=b'{"model":"x", "prompt":"p"}')
        assert stub.requests[0].raw == b'{"model":"x", "prompt":"p"}'
        # With the call id, an engine with the plugin would hold the answer back for a report on a
        # call that its scheduler does not know. A gateway treats such an engine as a stock server
        # if it refuses access.
        assert "x-weft-call" not in stub.requests[0].headers


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_stream_passes_unchanged_without_the_report(
    size: int, engine: Any, weft: Any
) -> None:
    frames = b"".join(b'data: {"n":%d,"t":"\xc3\xa9"}\n\n' % n for n in range(40))

    async def script(wire: Any, request: Any) -> None:
        comment = REPORT_COMMENT + report(request, service_s=2.0).encode() + b"\n\n"
        whole = frames + comment + b"data: [DONE]\n\n"
        await wire.stream(*(whole[i : i + size] for i in range(0, len(whole), size)))

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(body={"stream": True}, headers={"x-weft-program": "run"})
        assert got.headers["content-type"] == "text/event-stream"
        assert got.content == frames + b"data: [DONE]\n\n"
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["service_s"], session["calls_in_flight"]) == (2.0, 0)


async def test_the_call_is_closed_in_the_table_before_the_last_frame_arrives(
    engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        comment = REPORT_COMMENT + report(request, service_s=2.0).encode() + b"\n\n"
        await wire.stream(b"data: 1\n\n", comment, b"data: [DONE]\n\n", end=False)
        await wire.closed()

    async with engine(script=script) as stub, weft(stub) as gateway:
        body = {"model": "tiny", "stream": True}
        async with gateway.client.stream(
            "POST", "/v1/completions", json=body, headers={"x-weft-program": "run"}
        ) as got:
            seen = b""
            async for part in got.aiter_raw():
                seen += part
                if b"[DONE]" in seen:
                    # The engine's stream is still open, but the call is already closed in the
                    # table.
                    program = await gateway.client.get("/v1/sessions/run")
                    assert program.json()["service_s"] == 2.0
                    break


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "422 X", "429 Y", "500 Internal Server Error"]
)
async def test_engine_errors_keep_their_status_and_reason(
    status: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain(b'{"error": "as it is"}', status, {"retry-after": "9"})

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(headers={"x-weft-program": "run"})
        assert got.status_code == int(status[:3])
        assert got.json()["error"]["message"] == "as it is"
        assert got.headers["retry-after"] == "9"
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["errors"], session["calls_in_flight"]) == (1, 0)


async def _keys(gateway: Any) -> list[Any]:
    tenant = gateway.parts.auth.caller({}).tenant
    return [program.key for program in await gateway.parts.table.programs(tenant, 10)]


async def test_a_program_in_the_path_may_have_any_name(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.call("/p/a%2Fb%20c%0A/v1/chat/completions")
        assert got.headers["x-weft-program"] == "a/b%20c%0A"
        assert stub.requests[0].target == "/v1/chat/completions"
        session = await gateway.client.get("/v1/sessions/a%2Fb%20c%0A")
        assert session.json()["id"] == "a/b c\n"


async def test_anonymous_calls_leave_no_program_without_lineage(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, lineage=False) as gateway:
        for _ in range(3):
            assert (await gateway.call()).status_code == 200
        assert await _keys(gateway) == []
        assert "weft_programs 0.0" in (await gateway.client.get("/metrics")).text


async def test_a_chain_of_streamed_and_plain_responses_is_one_program(
    engine: Any, weft: Any
) -> None:
    replies = iter(("resp_a", "resp_b", "resp_c"))

    async def script(wire: Any, request: Any) -> None:
        response_id = next(replies)
        if request.json.get("stream"):
            done = {"type": "response.completed", "response": {"id": response_id}}
            event = b"event: response.completed\ndata: " + json.dumps(done).encode() + b"\n\n"
            await wire.stream(event)
        else:
            await wire.plain({"id": response_id})

    async with engine(script=script) as stub, weft(stub) as gateway:
        programs = []
        for extra in (
            {},
            {"previous_response_id": "resp_a", "stream": True},
            {"previous_response_id": "resp_b"},
        ):
            got = await gateway.call("/v1/responses", body={"input": "x"} | extra)
            programs.append(got.headers["x-weft-program"])
        assert len(set(programs[1:])) == 1


async def test_connections_are_reused(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        before = stub.connections
        for _ in range(10):
            assert (await gateway.call()).status_code == 200
        assert stub.connections == before + 1


async def test_a_large_body_and_a_large_answer_pass_completely(engine: Any, weft: Any) -> None:
    answer = json.dumps({"x": "y" * 5_000_000}).encode()

    async def script(wire: Any, request: Any) -> None:
        await wire.plain(answer)

    async with engine(script=script) as stub, weft(stub) as gateway:
        prompt = "z" * 3_000_000
        got = await gateway.call("/v1/completions", body={"prompt": prompt})
        assert got.content == answer
        assert stub.requests[0].json["prompt"] == prompt


async def test_a_chain_of_responses_without_a_session_id_is_one_program(
    engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain(b'{"id":"resp_%d"}' % len(stub.requests))

    async with engine(script=script) as stub, weft(stub) as gateway:
        first = await gateway.call("/v1/responses")
        second = await gateway.call("/v1/responses", body={"previous_response_id": "resp_1"})
        third = await gateway.call("/v1/responses", body={"previous_response_id": "resp_2"})
    programs = {answer.headers["x-weft-program"] for answer in (first, second, third)}
    assert len(programs) == 1
