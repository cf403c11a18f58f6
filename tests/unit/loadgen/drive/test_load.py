"""The requests of the load client."""

from __future__ import annotations

import asyncio
import json
from itertools import count, islice, repeat
from types import SimpleNamespace

import pytest
from weft_bench.drive import load as load_client
from weft_bench.drive.load import load, make_request, requests_of

REQUEST = make_request("http://localhost:1", "m", stream=False)


def prompts(distinct: bool) -> list[str]:
    sent = islice(requests_of(REQUEST, distinct), 5)
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in sent]
    return [body["messages"][0]["content"] for body in bodies]


def test_requests_are_identical_unless_they_must_differ():
    assert len(set(prompts(distinct=False))) == 1
    found = prompts(distinct=True)
    assert len(set(found)) == 5
    # Only the end differs, so that the content length in the head is right.
    assert {len(prompt) for prompt in found} == {len(prompts(distinct=False)[0])}
    assert {prompt[:-16] for prompt in found} == {prompts(distinct=False)[0][:-16]}


def test_runs_send_different_requests():
    assert not set(prompts(distinct=True)) & set(prompts(distinct=True))


@pytest.mark.anyio
@pytest.mark.parametrize(("seconds", "sent"), [(0.0, 3), (2.0, 3), (20.0, 10)])
async def test_minimum_number_is_sent_and_more_until_the_time_is_over(monkeypatch, seconds, sent):
    # Each read of the clock advances it by a second: once before a request and once after it.
    ticks = count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr(load_client, "time", clock)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await load(f"http://127.0.0.1:{port}", repeat(REQUEST), 3, 1, seconds)
    assert (found["requests"], found["errors"]) == (sent, 0)
