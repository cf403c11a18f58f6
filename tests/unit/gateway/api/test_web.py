"""Access of web pages: never to administration, to models only from allowed origins."""

from __future__ import annotations

from typing import Any

import pytest
from weft_gateway.api.web import Cors, check_admin
from weft_gateway.config import load
from weft_gateway.errors import ApiError

pytestmark = pytest.mark.anyio


def refused(
    method: str = "GET",
    headers: dict[bytes, bytes] | None = None,
    *,
    bodiless: bool = False,
    **settings: Any,
) -> str:
    """Return the error code of the refusal, "" if the request is allowed."""
    try:
        given = {b"host": b"127.0.0.1:8080", **(headers or {})}
        check_admin(method, given, load(**settings), bodiless=bodiless)
    except ApiError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    "host",
    [b"127.0.0.1:8080", b"localhost", b"LOCALHOST.:80", b"[::1]:8080", b"a.localhost", b"10.0.0.7"],
)
def test_local_host_names_are_allowed(host: bytes) -> None:
    assert refused(headers={b"host": host}) == ""


@pytest.mark.parametrize(
    "host", [b"", b"evil.example", b"evil.example:8080", b"localhost.evil.example", b"[::1", b"a@b"]
)
def test_other_host_names_are_refused(host: bytes) -> None:
    assert refused(headers={b"host": host}) == "host_not_allowed"


def test_the_address_is_a_host_name() -> None:
    gpu = {b"host": b"gpu-0:8080"}
    assert refused(headers=gpu, host="GPU-0") == ""
    # A page cannot know the key.
    assert refused(headers=gpu, admin_key="k") == ""


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, ""),
        ({b"content-length": b"0"}, ""),
        ({b"content-length": b"2"}, "json_required"),
        ({b"transfer-encoding": b"chunked"}, "json_required"),
        ({b"content-type": b"text/plain"}, "json_required"),
        ({b"origin": b"https://evil.example"}, "origin_not_allowed"),
    ],
)
def test_a_route_without_a_body_needs_no_content_type(
    headers: dict[bytes, bytes], code: str
) -> None:
    assert refused("POST", headers, bodiless=True) == code


def scope(method: str, path: str, **headers: str) -> dict[str, Any]:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": raw}


ASKS = {"origin": "https://a.example", "access_control_request_method": "POST"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "is_one"),
    [
        ("OPTIONS", "/v1/chat/completions", ASKS, True),
        ("OPTIONS", "/p/run/v1/messages", ASKS, True),
        ("OPTIONS", "/weft/policy", ASKS, False),
        ("OPTIONS", "/v1/models", {"origin": "https://a.example"}, False),
        ("POST", "/v1/chat/completions", ASKS, False),
    ],
)
def test_preflight_is_detected(
    method: str, path: str, headers: dict[str, str], is_one: bool
) -> None:
    assert Cors(["https://a.example"]).asks(scope(method, path, **headers)) is is_one


async def answered(cors: Cors, **headers: str) -> dict[bytes, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await cors.answer(scope("OPTIONS", "/v1/models", **headers), send)
    assert sent[0]["status"] == 200
    return dict(sent[0]["headers"])


async def test_invalid_requested_header_names_are_not_echoed() -> None:
    got = await answered(Cors(["*"]), **{**ASKS, "access_control_request_headers": "a\r\nb: c"})
    assert b"access-control-allow-headers" not in got


async def start_headers(cors: Cors, path: str = "/v1/models", **headers: str) -> dict[bytes, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    kept = [(b"x", b"y")]
    send_with_cors = cors.wrap(scope("GET", path, **headers), send)
    await send_with_cors({"type": "http.response.start", "status": 200, "headers": kept})
    await send_with_cors({"type": "http.response.body", "body": b""})
    assert kept == [(b"x", b"y")]
    return dict(sent[0]["headers"])


async def test_wildcard_origin_allows_every_origin() -> None:
    got = await start_headers(Cors(["*"]), origin="https://b.example")
    assert got[b"access-control-allow-origin"] == b"*"


async def test_admin_routes_never_get_cors_headers() -> None:
    assert await start_headers(Cors(["*"]), "/weft/state", origin="https://a.example") == {
        b"x": b"y"
    }
