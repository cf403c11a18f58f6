"""An engine that writes an extra answer: no call receives the answer of another call."""

import json
from typing import Any

import pytest
from weft_engine.wire import REPORT_COMMENT, CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ANOTHER = "call-0123456789ab-7"
SECRET = b"of another tenant"


def plain(text: bytes, call: str, connection: str = "keep-alive") -> bytes:
    body = json.dumps({"id": "resp_secret", "text": text.decode()}).encode()
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-weft-report: %b\r\n"
        b"connection: %b\r\ncontent-length: %d\r\n\r\n%b"
        % (CallReport(call).to_json().encode(), connection.encode(), len(body), body)
    )


def streamed(text: bytes, call: str) -> bytes:
    event = json.dumps({"type": "response.created", "response": {"id": "resp_secret"}}).encode()
    frames = (
        b"event: response.created\ndata: %b\n\n" % event,
        b"data: %b\n\n" % text,
        b"event: response.completed\ndata: {}\n\n",
        REPORT_COMMENT + CallReport(call).to_json().encode() + b"\n\n",
    )
    body = b"".join(frames)
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


class Stray:
    """Answers each call with `own` and an extra answer, written `before`, `together` or `after`."""

    def __init__(self, when: str) -> None:
        self.when = when

    async def __call__(self, wire: Any, request: Any) -> None:
        answer = streamed if request.json.get("stream") else plain
        own = answer(b"own", request.headers["x-weft-call"])
        stray = answer(SECRET, ANOTHER)
        if self.when == "before":
            await wire.send(stray + own)
        elif self.when == "together":
            await wire.send(own + stray)
        else:
            await wire.send(own, stray)


@pytest.mark.parametrize("when", ["together", "after"])
async def test_bytes_after_an_answer_close_its_connection(
    when: str, engine: Any, weft: Any
) -> None:
    async with engine(script=Stray(when)) as stub, weft(stub) as gateway:
        before = stub.connections
        for number in range(1, 6):
            got = await gateway.call()
            assert (got.status_code, got.json()["text"]) == (200, "own")
            assert stub.connections == before + number


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_an_answer_with_the_report_of_another_call_is_refused(
    path: str, engine: Any, weft: Any
) -> None:
    async with engine(script=Stray("before")) as stub, weft(stub) as gateway:
        before = stub.connections
        for number in (1, 2):
            got = await gateway.call(path, body={"input": "x"})
            assert (got.status_code, got.json()["error"]["code"]) == (502, "replica_wrong_call")
            assert stub.connections == before + number
        got = await gateway.client.get("/v1/responses/resp_secret")
        assert (got.status_code, got.json()["error"]["code"]) == (404, "response_not_found")


async def test_a_stream_with_the_report_of_another_call_is_cut(engine: Any, weft: Any) -> None:
    async with engine(script=Stray("before")) as stub, weft(stub) as gateway:
        before = stub.connections
        for number in (1, 2):
            got = await gateway.call("/v1/responses", body={"input": "x", "stream": True})
            assert "response.completed" not in got.text
            assert SECRET.decode() not in got.text  # It arrived in one piece with its report.
            error = json.loads(got.text.split("event: error\ndata: ")[1].split("\n\n")[0])
            assert error["code"] == "replica_wrong_call"
            assert stub.connections == before + number
        got = await gateway.client.get("/v1/responses/resp_secret")
        assert (got.status_code, got.json()["error"]["code"]) == (404, "response_not_found")


async def test_a_prefill_with_the_report_of_another_call_fails(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(script=Stray("before")) as stub, weft(stub) as gateway:
        before = stub.connections
        made = await gateway.call(
            "/v1/hints/prefill", body={"messages": [{"role": "user", "content": "x"}]}
        )
        path = f"/v1/hints/prefill/{made.json()['id']}"
        while (got := (await gateway.client.get(path)).json())["status"] == "running":
            pass
        assert got["status"] == "failed"
        assert "another call" in got["detail"]
        await gateway.call()
        assert stub.connections == before + 2
