"""Failing engines: the error at the client, the process table and the replica's circuit."""

import asyncio
import json
from random import Random
from typing import Any

import pytest
from weft_engine.wire import REPORT_COMMENT, CallReport
from weft_gateway.model import Opened, Opening
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.table import TableUnavailable

pytestmark = [pytest.mark.system, pytest.mark.anyio]

UNREACHABLE = "http://127.0.0.1:9"


def circuit_failures(gateway: Any, name: str = "r0") -> tuple[int, str]:
    circuit = gateway.parts.registry[name].circuit
    return circuit.failures, circuit.last_error


async def garbage(wire: Any, request: Any) -> None:
    await wire.send(b"\x16\x03\x01 this is not http\r\n\r\n")


async def early_close(wire: Any, request: Any) -> None:
    wire.writer.close()


async def close_in_body(wire: Any, request: Any) -> None:
    await wire.send(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"half":')
    wire.writer.close()


async def hang(wire: Any, request: Any) -> None:
    await wire.closed()


async def hang_in_body(wire: Any, request: Any) -> None:
    await wire.send(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"half":')
    await wire.closed()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (garbage, 502, "replica_garbage"),
        (early_close, 502, "replica_closed"),
        (close_in_body, 502, "replica_closed"),
        (hang, 504, "replica_timeout"),
        (hang_in_body, 504, "replica_timeout"),
    ],
)
async def test_a_failing_engine_gives_an_error_and_counts_as_a_failure(
    script: Any, status: int, code: str, path: str, engine: Any, weft: Any
) -> None:
    limits = {"first_byte_timeout_s": 0.2, "idle_timeout_s": 0.2} if status == 504 else {}
    async with engine(script=script) as stub, weft(stub, **limits) as gateway:
        got = await gateway.call(path, headers={"x-weft-program": "run", "x-request-id": "q"})
        assert got.status_code == status
        assert got.json()["error"].get("code") == (None if path == "/v1/messages" else code)
        assert ("type" in got.json()) == (path == "/v1/messages")
        assert got.headers["x-request-id"] == "q"
        assert circuit_failures(gateway) == (1, code)
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["calls_in_flight"], session["errors"]) == (1, 0, 1)
        health = (await gateway.client.get("/health")).json()
        assert health["replicas"][0]["last_error"] == code
        assert (
            f'weft_errors_total{{code="{code}"}} 1.0' in (await gateway.client.get("/metrics")).text
        )


async def test_a_replica_that_is_back_shows_no_error_of_the_past(
    engine: Any, weft: Any, until: Any
) -> None:
    async def replica(gateway: Any) -> Any:
        return (await gateway.client.get("/health")).json()["replicas"][0]

    async with (
        engine(healthy=False) as stub,
        weft(stub, health_interval_s=0.01) as gateway,
    ):
        assert "health_check" in (await replica(gateway))["last_error"]
        stub.healthy = True
        await until(lambda: gateway.parts.registry["r0"].circuit.healthy)
        assert (await replica(gateway))["last_error"] is None


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("how", ["close", "hang", "garbage", "end"])
@pytest.mark.parametrize("half", [b"data: {half", b""])
async def test_a_stream_that_breaks_ends_with_an_error_event(
    half: bytes, how: str, path: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b"data: 1\n\n", *filter(None, [half]), end=how == "end")
        if how == "close":
            wire.writer.close()
        elif how == "garbage":
            await wire.send(b"zz not a chunk size\r\n")
        elif how == "hang":
            await wire.closed()

    codes = {"hang": "replica_timeout", "garbage": "replica_garbage"}
    code = codes.get(how, "replica_closed")
    limits = {"idle_timeout_s": 0.3} if how == "hang" else {}
    async with engine(script=script) as stub, weft(stub, **limits) as gateway:
        got = await gateway.call(path, body={"stream": True}, headers={"x-weft-program": "run"})
        assert got.status_code == 200
        first, last, rest = got.text.split("\n\n")
        assert (first, rest) == ("data: 1", "")  # The partial frame is dropped.
        lines = last.split("\n")
        assert (lines[0] == "event: error") == (path == "/v1/messages")
        event = json.loads(lines[-1].removeprefix("data: "))
        assert event["error"].get("code") == (None if path == "/v1/messages" else code)
        assert circuit_failures(gateway) == (1, code)
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls_in_flight"], session["errors"]) == (0, 1)
        metrics = (await gateway.client.get("/metrics")).text
        assert f'weft_errors_total{{code="{code}"}} 1.0' in metrics


@pytest.mark.parametrize("framing", ["", "transfer-encoding: chunked\r\n"])
async def test_an_early_end_is_an_error_even_after_a_report(
    framing: str, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        report = CallReport(call=request.headers["x-weft-call"], service_s=2.0)
        comment = REPORT_COMMENT + report.to_json().encode() + b"\n\n"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n".encode()
        if framing:
            await wire.send(head)
            await wire.pieces(b"data: 1\n\n", comment)
        else:
            await wire.send(head, b"data: 1\n\n", comment)
            wire.writer.close()

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(body={"stream": True}, headers={"x-weft-program": "run"})
        assert got.text.startswith('data: 1\n\ndata: {"error":')
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["errors"], session["service_s"]) == (1, 2.0)
        assert circuit_failures(gateway) == (1, "replica_closed")


async def test_a_stream_without_a_known_end_marker_may_end_anywhere(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b"data: 1\n\n", b"data: 2")

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call("/v1/embeddings", headers={"x-weft-program": "run"})
        assert got.content == b"data: 1\n\ndata: 2"
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert session["errors"] == 0
        assert circuit_failures(gateway) == (0, "")


async def test_a_complete_answer_is_valid_when_the_engine_fails_afterwards(
    engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b"data: 1\n\n", b"data: [DONE]\n\n", end=False)
        wire.writer.close()

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.call(body={"stream": True}, headers={"x-weft-program": "run"})
        assert got.content == b"data: 1\n\ndata: [DONE]\n\n"
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert session["errors"] == 0


async def test_repeated_failures_exclude_a_replica_until_it_is_healthy_again(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(script=early_close, healthy=True) as stub, weft(stub) as gateway:
        stub.healthy = False
        for _ in range(3):
            assert (await gateway.call()).status_code in (502, 503)
        circuit = lambda: gateway.parts.registry["r0"].circuit  # noqa: E731
        await until(lambda: not circuit().alive)
        got = await gateway.call()
        assert got.status_code == 503
        assert got.json()["error"]["code"] == "no_replica"
        assert got.headers["retry-after"] == "2"
        assert (await gateway.client.get("/health")).status_code == 503
        stub.healthy = True
        gateway.parts.registry.suspicion.set()
        await until(lambda: circuit().healthy)
        assert (await gateway.client.get("/health")).status_code == 200


async def test_a_gateway_without_reachable_replicas_answers_503(weft: Any) -> None:
    async with weft(UNREACHABLE) as gateway:
        got = await gateway.call("/v1/messages")
        assert got.status_code == 503
        assert got.json()["error"]["type"] == "overloaded_error"
        assert int(got.headers["retry-after"]) > 0
        assert (await gateway.client.get("/health")).status_code == 503


async def test_a_refused_connection_moves_the_call_to_another_replica(
    engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(UNREACHABLE, stub) as gateway:
        dead = gateway.parts.registry["r0"]
        for _ in range(4):
            dead.circuit = dead.circuit.checked(True)
            got = await gateway.call(headers={"x-weft-program": "run"})
            assert got.status_code == 200
            assert got.headers["x-weft-replica"] == "r1"
        assert dead.circuit.last_error == "replica_unreachable"
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert session["calls_in_flight"] == 0
        seen = {request.headers["x-weft-call"] for request in stub.requests}
        assert len(seen) == 4


async def test_the_client_gets_503_when_every_replica_refuses_connections(
    engine: Any, weft: Any
) -> None:
    async with weft(UNREACHABLE, "http://127.0.0.1:10") as gateway:
        for replica in gateway.parts.registry:
            replica.circuit = replica.circuit.checked(True)
        got = await gateway.call(headers={"x-weft-program": "run"})
        assert got.status_code == 503
        assert all(not r.circuit.healthy for r in gateway.parts.registry)


async def test_a_call_is_not_retried_when_the_engine_closes_a_reused_connection(
    engine: Any, weft: Any
) -> None:
    closing = False

    async def script(wire: Any, request: Any) -> None:
        if closing:
            wire.writer.close()  # The engine reads the request and closes without an answer.
        else:
            await wire.plain({"ok": True})

    async with engine(script=script) as stub, engine() as other, weft(stub, other) as gateway:
        for _ in range(2):
            assert (await gateway.call()).status_code == 200
        closing = True
        got = await gateway.call()
        assert (got.status_code, got.json()["error"]["code"]) == (502, "replica_closed")
        assert (len(stub.requests), len(other.requests)) == (2, 1)


async def test_a_call_is_not_retried_when_the_engine_closes_a_new_connection(
    engine: Any, weft: Any
) -> None:
    async with engine(script=early_close) as stub, weft(stub) as gateway:
        assert (await gateway.call()).status_code == 502
        assert len(stub.requests) == 1


class BrokenTable(MemoryTable):
    """A table whose store fails while `broken` is set."""

    broken = False
    closings_refused = 0

    async def open_call(self, opening: Opening) -> Opened:
        if self.broken:
            raise TableUnavailable("the store is away")
        return await super().open_call(opening)

    async def close_call(self, closing: Any) -> Any:
        if self.closings_refused:
            self.closings_refused -= 1
            raise TableUnavailable("the store is away")
        return await super().close_call(closing)


async def test_calls_are_refused_when_the_table_is_unavailable(engine: Any, weft: Any) -> None:
    table = BrokenTable()
    async with engine() as stub, weft(stub, table=table) as gateway:
        table.broken = True
        got = await gateway.call()
        assert got.status_code == 503
        assert got.json()["error"]["code"] == "table_unavailable"
        assert "retry-after" in got.headers
        assert stub.requests == []
        table.broken = False
        assert (await gateway.call()).status_code == 200


async def test_a_failed_closing_is_retried(engine: Any, weft: Any) -> None:
    table = BrokenTable()
    async with engine() as stub, weft(stub, table=table) as gateway:
        table.closings_refused = 2
        assert (await gateway.call()).status_code == 200
        assert gateway.in_flight() == 1
        # On exit, the fixture checks that the call was closed later.


async def test_calls_are_served_while_a_replica_cuts_some_of_its_answers(
    engine: Any, weft: Any
) -> None:
    draw = Random(2)

    async def script(wire: Any, request: Any) -> None:
        await (close_in_body(wire, request) if draw.random() < 0.4 else wire.plain({}))

    async with engine(script=script) as bad, engine() as good, weft(bad, good) as gateway:
        statuses = [(await gateway.call()).status_code for _ in range(30)]
        assert set(statuses) == {200, 502}
        assert statuses.count(200) >= 15


async def test_concurrent_failing_calls_leave_no_call_open(engine: Any, weft: Any) -> None:
    scripts = [garbage, early_close, close_in_body]

    async def script(wire: Any, request: Any) -> None:
        await scripts[len(stub.requests) % len(scripts)](wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        answers = await asyncio.gather(
            *(gateway.call(headers={"x-weft-program": f"p{n % 5}"}) for n in range(40))
        )
        assert {answer.status_code for answer in answers} <= {502, 503}


@pytest.mark.parametrize("status", [b"404", b"400"])
async def test_an_engine_without_the_model_is_asked_for_its_models(
    status: bytes, engine: Any, weft: Any
) -> None:
    async def refuse(wire: Any, request: Any) -> None:
        await wire.send(b"HTTP/1.1 " + status + b" No\r\ncontent-length: 2\r\n\r\n{}")

    async with engine(script=refuse) as stub, weft(stub) as gateway:
        assert (await gateway.call()).status_code == int(status)
        assert gateway.parts.registry["r0"].doubted is (status == b"404")
        assert circuit_failures(gateway) == (0, "")
