"""Requests to running engines, with a small engine in place of one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.peers import replicas
from support.scripted_server import scripted
from weft_bench.peers import real
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall, TraceError, TraceProgram

PROMPT = ({"role": "system", "content": "a" * 396}, {"role": "user", "content": "b" * 96})


def engine(status: int = 200):
    """Return a script: one token per four characters, or per two in text with a "b"."""

    def answer(asked):
        text = asked.json["messages"][0]["content"]
        tokens = len(text) // (2 if "b" in text else 4)
        return status, {"id": "x", "usage": {"prompt_tokens": tokens}}

    return answer


def at(url: str):
    return replace(replicas(), urls=(url,))


def test_ratio_is_that_of_the_denser_sample():
    program = TraceProgram("p", (TraceCall(messages=PROMPT),))
    with scripted(engine()) as server:
        # A template adds 24 characters to each message.
        assert real.ratio_of(program, at(server.url)) == pytest.approx((96 + 24) / 48)


def test_refusal_of_the_engine_is_an_error():
    program = TraceProgram("p", (TraceCall(messages=PROMPT),))
    with scripted(engine(400)) as server, pytest.raises(ValueError, match="400"):
        real.ratio_of(program, at(server.url))


def test_lone_play_begins_with_empty_caches_and_reports_errors(monkeypatch):
    orders: list[str] = []
    monkeypatch.setattr(real.Replicas, "reset", lambda self, order: orders.append(order))
    call = ReadyCall(TraceCall(messages=PROMPT), 1, 1)
    program = ReadyProgram("p", (call,), cut=False, trimmed=False)
    body = json.dumps({"messages": PROMPT}).encode()
    with scripted(engine()) as server:
        assert real.alone_real(at(server.url))(program, [body], [0.0]) > 0
    assert orders == ["fcfs"]
    with scripted(engine(400)) as server, pytest.raises(TraceError, match="p fails"):
        real.alone_real(at(server.url))(program, [body], [0.0])
