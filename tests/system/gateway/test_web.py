"""Requests of web pages to a gateway on loopback, as browsers send them."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

POLICY = b'{"policy": "fcfs"}'
JSON = {"content-type": "application/json"}


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


async def test_a_page_cannot_administer_the_gateway(engine: Any, weft: Any) -> None:
    async with engine(canned={"/weft/policy": {}}) as stub, weft(stub) as gateway:
        post = gateway.client.post
        plain = {"content-type": "text/plain", "origin": "https://evil.example"}
        got = await post("/weft/policy", content=POLICY, headers=plain)
        assert code(got) == (403, "origin_not_allowed")
        # With an API key, which administration does not require.
        keyed = {**JSON, "origin": "https://evil.example", "authorization": "Bearer any"}
        got = await post("/weft/policy", content=POLICY, headers=keyed)
        assert code(got) == (403, "origin_not_allowed")
        got = await post("/weft/policy", content=POLICY, headers={"content-type": "text/plain"})
        assert code(got) == (415, "json_required")
        # DNS rebinding: the page's host resolves to this machine, so the browser sees one origin.
        rebound = {**JSON, "host": "evil.example", "origin": "http://evil.example"}
        got = await post("/weft/policy", content=POLICY, headers=rebound)
        assert code(got) == (403, "host_not_allowed")
        got = await gateway.client.get("/weft/state", headers={"host": "evil.example"})
        assert code(got) == (403, "host_not_allowed")
        assert stub.other == []
        got = await post("/weft/policy", content=POLICY, headers=JSON)
        assert got.json()["applied"] is True


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, None, "Policy, options or reset_cache is required."),
        ({"options": {}}, None, "Policy, options or reset_cache is required."),
        ({"options": {"alpha": True}}, "options.alpha", "must be a number"),
        ({"options": {"alpha": "1"}}, "options.alpha", "must be a number"),
        ({"options": {"alpha": None}}, "options.alpha", "must be a number"),
        ({"options": 3}, "options", "must be an object"),
        ({"polcy": "fcfs"}, "polcy", "unknown key; did you mean policy?"),
    ],
)
async def test_invalid_policy_is_refused(
    weft: Any, body: dict[str, Any], param: str | None, said: str
) -> None:
    async with weft(balancer="work") as gateway:
        answer = await gateway.client.post("/weft/policy", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param)
        assert error["message"] == (f"{param}: {said}" if param else said)


async def test_other_origins_are_refused_by_default(engine: Any, weft: Any) -> None:
    asks = {"origin": "https://a.example", "access-control-request-method": "POST"}
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.client.options("/v1/chat/completions", headers=asks)
        assert code(got) == (405, "method_not_allowed")
        got = await gateway.client.get("/v1/models", headers={"origin": "https://a.example"})
        assert got.status_code == 200
        assert "access-control-allow-origin" not in got.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_pages_of_other_origins_cannot_send_changes(
    origin: str, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        # Browsers send such a request without a preflight.
        plain = {"content-type": "text/plain", "origin": origin}
        body = b'{"model": "tiny", "messages": []}'
        for method, path in (
            ("POST", "/v1/chat/completions"),
            ("POST", "/p/run/v1/messages"),
            ("POST", "/v1/sessions"),
            ("POST", "/finish_session?session_id=run"),
            ("POST", "/v1/hints/tags"),
            ("POST", "/tokenize"),
            ("DELETE", "/v1/sessions/run"),
        ):
            got = await gateway.client.request(method, path, content=body, headers=plain)
            assert got.status_code == 403
            assert "WEFT_CORS_ORIGINS" in got.json()["error"]["message"]
        assert stub.requests == []
        assert (await gateway.client.get("/v1/sessions")).json()["data"] == []


async def test_same_origin_pages_and_clients_with_a_key_may_call(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        for headers in (
            {"origin": gateway.url},
            {"origin": "app://client", "authorization": "Bearer sk-1"},
            {"origin": "app://client", "x-api-key": "sk-1"},
        ):
            assert (await gateway.call(headers=headers)).status_code == 200


async def test_allowed_origins_may_use_only_the_model_endpoints(engine: Any, weft: Any) -> None:
    origin = {"origin": "https://a.example"}
    asks = {**origin, "access-control-request-method": "POST"}
    async with engine() as stub, weft(stub, cors_origins="https://a.example/") as gateway:
        for path in ("/v1/chat/completions", "/p/run/v1/messages", "/v1/models"):
            got = await gateway.client.options(path, headers=asks)
            assert got.status_code == 200
            assert got.headers["access-control-allow-origin"] == "https://a.example"
        for got in (
            await gateway.call(headers=origin),
            await gateway.call("/v1/messages", headers=origin, body={"model": "none"}),
            await gateway.client.get("/v1/models", headers=origin),
        ):
            assert got.headers["access-control-allow-origin"] == "https://a.example"
        for path in ("/weft/state", "/weft/policy"):
            got = await gateway.client.options(path, headers=asks)
            assert got.status_code >= 400
            assert "access-control-allow-origin" not in got.headers
        got = await gateway.client.get("/weft/state", headers=origin)
        assert code(got) == (403, "origin_not_allowed")
