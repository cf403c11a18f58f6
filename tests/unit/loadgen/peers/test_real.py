"""Requests to running engines, with a small engine in place of one."""

from __future__ import annotations

import json

import httpx
import pytest
from support.peers import replicas
from weft_bench.peers import drive, real
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall, TraceError, TraceProgram

PROMPT = ({"role": "system", "content": "a" * 396}, {"role": "user", "content": "b" * 96})


class Engine:
    """Counts one token per four characters, or per two in text with a "b"."""

    status = 200

    def __init__(self, url: str) -> None:
        pass

    async def post(self, path, body, headers):
        text = json.loads(body)["messages"][0]["content"]
        tokens = len(text) // (2 if "b" in text else 4)
        answer = {"id": "x", "usage": {"prompt_tokens": tokens}}
        return self.status, json.dumps(answer).encode()

    def close(self):
        pass


class Refusing(Engine):
    status = 400


def counting(status: int) -> httpx.AsyncClient:
    """Return a client of an engine that counts as `Engine` does."""

    async def answer(request: httpx.Request) -> httpx.Response:
        _, body = await Engine("").post("", request.content, {})
        return httpx.Response(status, content=body)

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


def test_ratio_is_that_of_the_denser_sample(monkeypatch):
    monkeypatch.setattr(real, "connect", lambda: counting(200))
    program = TraceProgram("p", (TraceCall(messages=PROMPT),))
    # A template adds 24 characters to each message.
    assert real.ratio_of(program, replicas()) == pytest.approx((96 + 24) / 48)


def test_refusal_of_the_engine_is_an_error(monkeypatch):
    monkeypatch.setattr(real, "connect", lambda: counting(400))
    with pytest.raises(ValueError, match="rejected"):
        real.ratio_of(TraceProgram("p", (TraceCall(messages=PROMPT),)), replicas())


def test_lone_play_begins_with_empty_caches_and_reports_errors(monkeypatch):
    orders: list[str] = []
    monkeypatch.setattr(real.Replicas, "reset", lambda self, order: orders.append(order))
    call = ReadyCall(TraceCall(messages=PROMPT), 1, 1)
    program = ReadyProgram("p", (call,), cut=False, trimmed=False)
    body = json.dumps({"messages": PROMPT}).encode()
    monkeypatch.setattr(drive, "Client", Engine)
    assert real.alone_real(replicas())(program, [body], [0.0]) > 0
    assert orders == ["fcfs"]
    monkeypatch.setattr(drive, "Client", Refusing)
    with pytest.raises(TraceError, match="p fails"):
        real.alone_real(replicas())(program, [body], [0.0])
