"""Requests that the gateway refuses itself, each with an error in the format of its endpoint."""

from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"a": NaN}', "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[1]", "invalid_body"),
        (b'"text"', "invalid_body"),
        (b"null", "invalid_body"),
    ],
)
async def test_bad_bodies_are_400(body: bytes, expected: str, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.client.post("/v1/chat/completions", content=body)
        assert code(got) == (400, expected)
        assert stub.requests == []


@pytest.mark.parametrize("declared", [True, False], ids=["content-length", "chunked"])
async def test_a_body_over_the_limit_is_413(declared: bool, engine: Any, weft: Any) -> None:
    body = b'{"x":"' + b"y" * 4096 + b'"}'

    async def pieces() -> Any:
        for start in range(0, len(body), 512):
            yield body[start : start + 512]

    async with engine() as stub, weft(stub, max_body_bytes=2048) as gateway:
        content = body if declared else pieces()
        got = await gateway.client.post("/v1/messages", content=content)
        assert got.status_code == 413
        assert got.json()["error"]["type"] == "request_too_large"
        assert (await gateway.call()).status_code == 200


async def test_a_missing_model_is_passed_on_when_one_model_is_served(
    engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.client.post("/v1/completions", json={"prompt": "x"})
        assert got.status_code == 200
        assert "model" not in stub.requests[0].json


async def test_a_missing_model_is_400_when_several_models_are_served(
    engine: Any, weft: Any
) -> None:
    async with engine(models=("a", "b")) as stub, weft(stub) as gateway:
        got = await gateway.client.post("/v1/completions", json={"prompt": "x"})
        assert code(got) == (400, "missing_model")


async def test_calls_are_routed_to_a_replica_with_their_model(engine: Any, weft: Any) -> None:
    async with (
        engine(models=("a",)) as first,
        engine(models=("b",)) as second,
        weft(first, second) as gateway,
    ):
        for _ in range(3):
            got = await gateway.call(body={"model": "b"})
            assert got.headers["x-weft-replica"] == "r1"
        assert first.requests == []


async def test_only_accepted_keys_are_served(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, api_keys="sk-good") as gateway:
        good = {"authorization": "Bearer sk-good"}
        assert code(await gateway.call()) == (401, "invalid_api_key")
        assert code(await gateway.call(headers={"x-api-key": "sk-bad"}))[0] == 401
        assert (await gateway.client.get("/v1/models")).status_code == 401
        assert (await gateway.client.get("/v1/sessions")).status_code == 401
        assert (await gateway.client.get("/health")).status_code == 200
        assert (await gateway.call(headers=good)).status_code == 200
        assert (await gateway.call(headers={"x-api-key": "sk-good"})).status_code == 200
        assert (await gateway.client.get("/v1/models", headers=good)).status_code == 200
        assert len(stub.requests) == 2


async def test_wrong_methods_and_unknown_routes_get_api_errors(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.client.get("/v1/chat/completions")
        assert code(got) == (405, "method_not_allowed")
        assert got.headers["allow"] == "POST"
        assert code(await gateway.client.delete("/health")) == (405, "method_not_allowed")
        assert code(await gateway.client.get("/v1/nothing")) == (404, "unknown_url")
        assert code(await gateway.client.post("/p/x/other", json={})) == (404, "unknown_url")
        got = await gateway.client.get("/v1/messages")
        assert (got.status_code, got.json()["type"]) == (405, "error")


async def test_an_unknown_url_of_the_messages_api_is_404_in_its_format(
    engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        for path in ("/v1/messages/nothing", "/p/run/v1/messages/nothing"):
            got = await gateway.client.post(path, json={})
            assert got.status_code == 404
            assert got.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/sessions", "/weft/policy"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", "invalid_json"),
        (b"[1]", "invalid_body"),
        (b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}", "too_deeply_nested"),
    ],
    ids=["broken", "list", "deep"],
)
async def test_a_body_error_has_the_same_code_on_every_route(
    path: str, body: bytes, expected: str, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        kind = {"content-type": "application/json"}
        got = await gateway.client.post(path, content=body, headers=kind)
        assert code(got) == (400, expected)


@pytest.mark.parametrize("declared", [True, False], ids=["content-length", "chunked"])
@pytest.mark.parametrize("path", ["/v1/sessions", "/weft/policy"])
async def test_other_routes_limit_their_bodies(
    path: str, declared: bool, engine: Any, weft: Any
) -> None:
    body = b'{"metadata": {"x": "' + b"y" * (1 << 16) + b'"}}'

    async def pieces() -> Any:
        for start in range(0, len(body), 1 << 12):
            yield body[start : start + (1 << 12)]

    async with engine() as stub, weft(stub) as gateway:
        content = body if declared else pieces()
        kind = {"content-type": "application/json"}
        got = await gateway.client.post(path, content=content, headers=kind)
        assert code(got) == (413, "body_too_large")
        assert (await gateway.client.get("/v1/sessions")).json()["data"] == []


@pytest.mark.parametrize(
    "field", ["session_id", "session_params", "weft", "nvext", "vllm_xargs", "cache_salt"]
)
async def test_a_body_too_deep_to_be_rewritten_is_400_and_closes_its_call(
    field: str, engine: Any, weft: Any
) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    plain = {"session_id": "p", "session_params": {}, "weft": {}, "nvext": {}}
    body = {"input": deep, field: plain.get(field, {"a": 1} if field == "vllm_xargs" else "salt")}
    headers = {"x-weft-program": "run", "authorization": "Bearer sk"}
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.call(body=body, headers=headers)
        assert code(got) == (400, "too_deeply_nested")
        assert gateway.in_flight() == 0
        assert (await gateway.call(body={"input": deep}, headers=headers)).status_code == 200
        assert len(stub.requests) == 1


@pytest.mark.parametrize(
    "message",
    [
        {"role": [], "content": "a"},
        {"role": "user", "content": [{"type": [], "text": "a"}]},
        {"role": "user", "content": [{"type": {"a": 1}}]},
    ],
    ids=["role", "type", "media"],
)
async def test_malformed_messages_are_left_to_the_engine(
    message: Any, engine: Any, weft: Any
) -> None:
    async def refuse(wire: Any, request: Any) -> None:
        await wire.plain({"error": {"message": "no", "code": 400}}, "400 Bad Request")

    async with engine(script=refuse) as stub, weft(stub) as gateway:
        for more in ({}, {"stream": True}, {"tools": [message]}):
            body = {"model": "tiny", "messages": [message], **more}
            for path in ("/v1/chat/completions", "/v1/messages"):
                refused = await gateway.call(path, body=body)
                assert (refused.status_code, refused.json()["error"]["message"]) == (400, "no")
            got = await gateway.client.post("/v1/hints/prefill", json=body)
            assert got.status_code in (201, 400)


async def test_deep_session_metadata_is_400_and_creates_no_session(engine: Any, weft: Any) -> None:
    deep = b"[" * 300 + b"]" * 300
    async with engine() as stub, weft(stub) as gateway:
        body = b'{"id": "s", "metadata": {"a": %b}}' % deep
        got = await gateway.client.post("/v1/sessions", content=body)
        assert code(got) == (400, "too_deeply_nested")
        assert (await gateway.client.get("/v1/sessions")).json()["data"] == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/sessions"])
async def test_a_byte_order_mark_before_json_is_accepted(path: str, engine: Any, weft: Any) -> None:
    async with engine(weft=False) as stub, weft(stub) as gateway:
        got = await gateway.client.post(path, content=b'\xef\xbb\xbf{"id": "s"}')
        assert got.status_code in (200, 201)
        assert [request.raw for request in stub.requests] in ([], [b'{"id": "s"}'])


async def test_errors_name_the_invalid_parameter(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        for got, param in (
            (await gateway.client.post("/v1/sessions", json={"id": 7}), "id"),
            (await gateway.client.post("/weft/policy", json={"policy": "x"}), "policy"),
            (await gateway.client.get("/v1/sessions", params={"limit": 0}), "limit"),
        ):
            assert code(got) == (400, "invalid_request")
            assert got.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/sessions", "/docs"])
async def test_head_equals_get_without_a_body(path: str, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got, asked = await gateway.client.head(path), await gateway.client.get(path)
        assert (got.status_code, got.content) == (200, b"")
        assert got.headers["content-type"] == asked.headers["content-type"]
        assert (await gateway.client.head("/v1/chat/completions")).status_code == 405
