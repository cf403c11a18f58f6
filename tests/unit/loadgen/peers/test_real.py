"""What real engines are asked, with an engine of a few lines in place of one."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest
from support.peers import replicas
from weft_bench.peers import drive, real
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall, TraceError, TraceProgram

PROMPT = ({"role": "system", "content": "a" * 396}, {"role": "user", "content": "b" * 96})


class Engine:
    """Counts a token for every so many characters, fewer in tools' output."""

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


def test_the_denser_sample_counts(monkeypatch):
    monkeypatch.setattr(real, "connect", lambda: counting(200))
    program = TraceProgram("p", (TraceCall(messages=PROMPT),))
    # With what a template adds to each message, 24 characters.
    assert real.ratio_of(program, replicas()) == pytest.approx((96 + 24) / 48)


def test_an_engine_that_refuses_ends_it(monkeypatch):
    monkeypatch.setattr(real, "connect", lambda: counting(400))
    with pytest.raises(ValueError, match="rejected"):
        real.ratio_of(TraceProgram("p", (TraceCall(messages=PROMPT),)), replicas())


def test_alone_is_played_with_empty_caches_and_an_error_is_told(monkeypatch):
    orders: list[str] = []
    there = replace(replicas(), set_order=orders.append)
    monkeypatch.setattr(real.Replicas, "reset", lambda self, order: self.set_order(order))
    call = ReadyCall(TraceCall(messages=PROMPT), 1, 1)
    program = ReadyProgram("p", (call,), cut=False, trimmed=False)
    body = json.dumps({"messages": PROMPT}).encode()
    monkeypatch.setattr(drive, "Client", Engine)
    assert real.alone_real(there)(program, [body], [0.0]) > 0
    assert orders == ["fcfs"]
    monkeypatch.setattr(drive, "Client", Refusing)
    with pytest.raises(TraceError, match="p fails"):
        real.alone_real(there)(program, [body], [0.0])
