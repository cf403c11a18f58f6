"""Engines with repeated 5xx answers, and answers that no engine gives."""

import asyncio
from typing import Any

import pytest
from support.waiting import DEADLINE_S

KEYS = ("own", "a", "b")

pytestmark = [pytest.mark.system, pytest.mark.anyio]


def circuit_failures(gateway: Any, name: str = "r0") -> tuple[int, str]:
    circuit = gateway.parts.registry[name].circuit
    return circuit.failures, circuit.last_error


def without_checks(gateway: Any) -> None:
    """Stop health checks after failures."""
    gateway.parts.registry.suspicion = asyncio.Event()


class Failing:
    """Answer with `status` and an error body while `broken`, and with success otherwise."""

    def __init__(self, status: str, kind: str = "application/json", stream: bool = False) -> None:
        self.status, self.kind, self.stream, self.broken = status, kind, stream, True
        self.answer = b'{"error": {"message": "boom", "code": 500}}'

    async def __call__(self, wire: Any, request: Any) -> None:
        if not self.broken:
            await wire.plain({"ok": True})
        elif self.stream:
            await wire.send(
                f"HTTP/1.1 {self.status}\r\ncontent-type: text/event-stream\r\n"
                f"content-length: {len(self.answer)}\r\n\r\n".encode()
                + self.answer
            )
        else:
            await wire.plain(self.answer, self.status, {"content-type": self.kind})


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        ("500 Internal Server Error", True),
        ("502 Bad Gateway", True),
        ("503 Service Unavailable", True),
        ("501 Not Implemented", False),
        ("400 Bad Request", False),
        ("404 Not Found", False),
        ("429 Too Many Requests", False),
    ],
)
@pytest.mark.parametrize(
    "options", [{}, {"kind": "text/html"}, {"stream": True}], ids=["json", "html", "stream"]
)
async def test_a_5xx_answer_keeps_its_reason_and_counts_as_a_failure(
    options: dict[str, Any], status: str, counts: bool, engine: Any, weft: Any
) -> None:
    failing = Failing(status, **options)
    async with engine(script=failing) as stub, weft(stub) as gateway:
        without_checks(gateway)
        for n in range(1, 4):
            got = await gateway.call(headers={"x-weft-program": "run"})
            assert (got.status_code, got.json()["error"]["message"]) == (int(status[:3]), "boom")
            assert got.headers["content-type"] == "application/json"
            assert got.headers["x-weft-replica"] == "r0"
            assert circuit_failures(gateway) == ((n, "replica_5xx") if counts else (0, ""))
        assert gateway.parts.registry["r0"].circuit.healthy is not counts
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert session["errors"] == 3


async def test_a_replica_with_5xx_answers_gets_traffic_again_after_its_recovery(
    engine: Any, weft: Any, until: Any
) -> None:
    failing = Failing("500 Internal Server Error")
    async with (
        engine(script=failing) as bad,
        engine() as good,
        weft(bad, good, balancer="least_used", health_interval_s=0.02) as gateway,
    ):
        registry = gateway.parts.registry
        answers = [(await gateway.call()).status_code for _ in range(60)]
        # Three failures open the circuit. Each later one follows a time when it closed again.
        assert 3 <= answers.count(500) <= 3 + registry["r0"].circuit.trips
        assert len(good.requests) == 60 - answers.count(500)
        failing.broken = False
        answered = len(bad.requests)

        async with asyncio.timeout(DEADLINE_S):
            while len(bad.requests) == answered:
                assert (await gateway.call()).status_code == 200
        assert registry["r0"].circuit.healthy
        assert circuit_failures(gateway) == (0, "")


async def test_single_5xx_answers_exclude_no_replica(engine: Any, weft: Any) -> None:
    failing = Failing("500 Internal Server Error")
    async with engine(script=failing) as stub, weft(stub) as gateway:
        for n in range(12):
            failing.broken = n % 3 != 2
            assert (await gateway.call()).status_code == (500 if failing.broken else 200)
            assert gateway.parts.registry["r0"].circuit.healthy


async def test_the_last_replica_gets_calls_despite_its_failures(engine: Any, weft: Any) -> None:
    failing = Failing("500 Internal Server Error")
    async with (
        engine(script=failing) as stub,
        engine(models=("other",)) as other,
        weft(stub, other) as gateway,
    ):
        for _ in range(8):
            assert (await gateway.call()).status_code == 500  # The gateway adds no 503.
        assert not gateway.parts.registry["r0"].circuit.healthy
        failing.broken = False
        assert (await gateway.call()).status_code == 200
    async with engine(script=failing) as stub, weft(stub) as gateway:
        without_checks(gateway)
        failing.broken = True
        for _ in range(3):
            await gateway.call()
        health = await gateway.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert health.json()["replicas"][0]["healthy"] is False
        assert health.json()["replicas"][0]["last_error"] == "replica_5xx"
        # Passed-through routes use the replica as well.
        got = await gateway.client.post("/tokenize", json={"prompt": "x"})
        assert got.status_code == 500


async def html(wire: Any, request: Any) -> None:
    await wire.plain(b"<html>It works!</html>", headers={"content-type": "Text/HTML"})


async def empty(wire: Any, request: Any) -> None:
    await wire.plain(b"")


async def no_content(wire: Any, request: Any) -> None:
    await wire.send(b"HTTP/1.1 204 No Content\r\n\r\n")


async def redirect(wire: Any, request: Any) -> None:
    await wire.plain(b"{}", "302 Found", {"location": "http://127.0.0.1:1/login"})


async def empty_redirect(wire: Any, request: Any) -> None:
    await wire.send(b"HTTP/1.1 304 Not Modified\r\ncontent-type: text/event-stream\r\n\r\n")


async def closed_without_body(wire: Any, request: Any) -> None:
    await wire.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
    wire.writer.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(
    "script", [html, empty, no_content, redirect, empty_redirect, closed_without_body]
)
async def test_an_invalid_answer_gives_an_error_and_counts_as_a_failure(
    script: Any, path: str, engine: Any, weft: Any
) -> None:
    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(path, headers={"x-weft-program": "run", "x-request-id": "q"})
        assert got.status_code == 502
        codes = {"/v1/chat/completions": "replica_bad_answer", "/v1/messages": None}
        assert got.json()["error"].get("code") == codes[path]
        assert ("type" in got.json()) == (path == "/v1/messages")
        assert got.headers["content-type"] == "application/json"
        assert got.headers["x-request-id"] == "q"
        assert "location" not in got.headers
        assert circuit_failures(gateway) == (1, "replica_bad_answer")
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["calls_in_flight"], session["errors"]) == (1, 0, 1)
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_errors_total{code="replica_bad_answer"} 1.0' in metrics


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/octet-stream"]
)
async def test_answers_of_the_content_types_of_engines_pass(
    kind: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain(b"\x00\x01", headers={"content-type": kind})

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call("/v1/embeddings")
        assert (got.status_code, got.content) == (200, b"\x00\x01")
        assert got.headers["content-type"] == kind


async def test_an_answer_without_a_content_type_passes(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async with engine(script=script) as stub, weft(stub) as gateway:
        assert (await gateway.call()).content == b"{}"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_headers_about_the_host_are_removed_from_an_engines_answer(
    path: str, stream: bool, engine: Any, weft: Any
) -> None:
    foreign = {
        "set-cookie": "a=b",
        "vary": "Origin",
        "location": "http://127.0.0.1:1/",
        "strict-transport-security": "max-age=31536000",
        "access-control-allow-origin": "*",
    }

    async def script(wire: Any, request: Any) -> None:
        kind = {"content-type": "text/event-stream" if stream else "application/json"}
        headers = foreign | kind | {"retry-after": "7"}
        await wire.plain(b"data: [DONE]\n\n", headers=headers)

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(path)
        assert got.status_code == 200
        assert set(foreign).isdisjoint(got.headers)
        assert got.headers["retry-after"] == "7"


@pytest.mark.parametrize("status", ["999 X", "600 X", "302 Found", "304 Not Modified"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_an_unexpected_status_is_a_bad_answer(
    engine: Any, weft: Any, status: str, path: str
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.send(
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode()
            + b"content-length: 0\r\n\r\n"
        )

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(path)
        assert got.status_code == 502
        assert got.json()["error"]["code"] == "replica_bad_answer"


OPENAI = {"error": {"message": "max_tokens: too small", "type": "BadRequestError", "code": 400}}
INVALID = {"detail": [{"loc": ["body", "input"], "msg": "Field required", "type": "missing"}]}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    ("error_body", "message"),
    [
        (OPENAI, "max_tokens: too small"),
        ({"detail": "Not Found"}, "Not Found"),
        (INVALID, "Field required"),
        ({"error": "as text"}, "as text"),
    ],
)
async def test_anthropic_clients_get_an_engine_error_in_their_format(
    path: str, error_body: Any, message: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain(error_body, "400 Bad Request")

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(path)
        assert (got.status_code, got.json()["type"]) == (400, "error")
        assert got.json()["error"]["type"] == "invalid_request_error"
        assert got.json()["error"]["message"] == message


@pytest.mark.parametrize(
    ("error_body", "message", "param"),
    [({"detail": "Not Found"}, "Not Found", None), (INVALID, "Field required", "input")],
)
async def test_an_engine_error_in_fastapi_format_becomes_an_openai_error(
    error_body: Any, message: str, param: str | None, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain(error_body, "404 Not Found")

    async with engine(script=script) as stub, weft(stub) as gateway:
        for path in ("/v1/embeddings", "/tokenize", "/detokenize"):
            got = await gateway.client.post(path, json={"model": "tiny"})
            error = got.json()["error"]
            assert (got.status_code, error["message"], error["param"]) == (404, message, param)
            assert error["type"] == "invalid_request_error"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_failing_calls_of_one_tenant_do_not_exclude_the_replica(
    engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        bad = request.json.get("user") == "bad"
        await wire.plain({"ok": not bad}, "500 Internal Server Error" if bad else "200 OK")

    async with engine(script=script) as stub, weft(stub) as gateway:
        without_checks(gateway)
        for name in ("a", "b"):
            assert (await gateway.call(headers=bearer(name))).status_code == 200
        for _ in range(5):
            got = await gateway.call(headers=bearer("a"), body={"user": "bad"})
            assert got.status_code == 500
        assert gateway.parts.registry["r0"].circuit.healthy
        assert (await gateway.call(headers=bearer("b"))).status_code == 200


@pytest.mark.parametrize(
    ("body", "kind"), [(b"<html>", "text/html"), (b"", "application/json")], ids=["type", "empty"]
)
async def test_an_invalid_answer_is_a_bad_answer_on_every_route(
    body: bytes, kind: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain(body, headers={"content-type": kind})

    async with engine(script=script) as stub, weft(stub) as gateway:
        for path in ("/tokenize", "/v1/embeddings"):
            got = await gateway.client.post(path, json={"model": "tiny"})
            assert (got.status_code, got.json()["error"]["code"]) == (502, "replica_bad_answer")
