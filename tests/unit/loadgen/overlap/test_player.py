"""Plays agents' requests against a small gateway that controls the order of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from support.serving import client_of
from support.waiting import DEADLINE_S
from weft_bench.overlap.player import ROWS, OverlapPlayer, Work
from weft_bench.overlap.prompts import ready
from weft_bench.overlap.shape import ShapeCall, ShapeRequest, ShapeTurn

pytestmark = pytest.mark.anyio

BASELINE, SPLITTING, DISPATCH, TAGS = ROWS
CALLS = (ShapeCall(0, 1.0), ShapeCall(1, 1.0))
SHAPE = ShapeRequest(
    0, (ShapeTurn("beginning 0", 1, 0, CALLS), ShapeTurn("after 0 1", 1, 0.3)), 0.3, 5
)
TURNS = ready(0, SHAPE, 100)
FINAL_TOKENS = 4


def data(**chunk) -> bytes:
    return b"data: %b\n\n" % json.dumps(chunk).encode()


def answer_chunk(text: str, finish: str | None = None) -> bytes:
    return data(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


def event(index: int) -> bytes:
    return b"event: tool_call_dispatch\n" + data(choices=[], tool_call={"index": index})


class Gateway:
    """Writes the answers.

    events: calls that it reports before the forced answer's end, which waits for `hold` if set.
    log: the requests in order.
    """

    def __init__(self, events=(), answer=TURNS[0].answer, refuse=""):
        self.events, self.answer, self.refuse = events, answer, refuse
        self.hold: Callable[[], Awaitable[None]] | None = None
        self.log: list[tuple[str, str]] = []
        self.bodies: list[dict] = []
        self.headers: list[httpx.Headers] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.log.append((request.method, path))
        if self.refuse and path.endswith(self.refuse):
            return httpx.Response(409, text="refused")
        if path.endswith("/story"):
            return httpx.Response(200, json={"saved_s": {"prefill": 0.25}})
        if path.startswith("/v1/sessions"):
            return httpx.Response(200, json={"prompt_tokens": 90, "cached_tokens": 30})
        body = json.loads(request.content)
        self.bodies.append(body)
        self.headers.append(request.headers)
        if path == "/v1/hints/prefill":
            return httpx.Response(201, json={"id": "pf_1"})
        return httpx.Response(200, content=self._stream(body))

    async def _stream(self, body) -> AsyncIterator[bytes]:
        if "structured_outputs" in body:
            yield answer_chunk(self.answer[:5])
            if "x-weft-tool-dispatch" in self.headers[-1]:
                for index in self.events:
                    yield event(index)
            if self.hold is not None:
                await self.hold()
            yield answer_chunk(self.answer[5:], "stop")
        else:
            yield answer_chunk("a final answer", "length")
        yield data(choices=[], usage={"prompt_tokens": 50, "completion_tokens": FINAL_TOKENS})
        self.log.append(("answer", "ended"))
        yield b"data: [DONE]\n\n"


class Tools:
    """Tools that record their start and end in the gateway's log."""

    def __init__(self, gateway: Gateway) -> None:
        self.log = gateway.log
        self.ended = 0
        self.changed = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.log.append(("begin", str(seconds)))
        await asyncio.sleep(seconds)
        self.log.append(("end", str(seconds)))
        self.ended += 1
        self.changed.set()

    async def all_ended(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while self.ended < len(CALLS):
                self.changed.clear()
                await self.changed.wait()


async def play(gateway, row, seconds=(0.0, 0.01), final_tokens=FINAL_TOKENS, *, hold=False):
    tools = Tools(gateway)
    if hold:
        gateway.hold = tools.all_ended
    async with client_of(gateway) as client:
        player = OverlapPlayer(client, "m", row, "run", tools)
        done = []
        works = [Work(0, TURNS, [seconds], final_tokens)]
        [result] = await player.play(works, [0.0], lambda: done.append(1))
        assert done == [1]
        return result


async def test_baseline_runs_all_steps_in_sequence():
    gateway = Gateway(events=(0, 1))
    result = await play(gateway, BASELINE)
    assert result.errors == []
    assert gateway.log == [
        ("POST", "/v1/chat/completions"),
        ("answer", "ended"),
        ("begin", "0.0"),
        ("begin", "0.01"),
        ("end", "0.0"),
        ("end", "0.01"),
        ("POST", "/v1/chat/completions"),
        ("answer", "ended"),
        ("GET", "/v1/sessions/run-0/story"),
        ("GET", "/v1/sessions/run-0"),
        ("DELETE", "/v1/sessions/run-0"),
    ]
    assert (result.extended, result.dispatched) == (0, 0)
    assert 0 < result.tool_s < result.ftr_s <= result.e2e_s
    assert (result.prompt_tokens, result.computed_tokens) == (100, 60)
    first, final = gateway.bodies
    assert first["messages"] == TURNS[0].messages
    assert final["messages"] == TURNS[1].messages
    assert final["max_tokens"] == FINAL_TOKENS
    assert all(body["weft"] == {"tags": []} for body in gateway.bodies)


async def test_splitting_prefills_the_independent_part_and_extends_it():
    gateway = Gateway()
    result = await play(gateway, SPLITTING)
    assert [path for method, path in gateway.log if method == "POST"] == [
        "/v1/chat/completions",
        "/v1/hints/prefill",
        "/v1/hints/prefill/pf_1/extend",
    ]
    assert gateway.bodies[1]["messages"] == list(TURNS[1].independent)
    assert gateway.bodies[2]["messages"] == TURNS[1].messages
    assert gateway.bodies[1]["tools"] == gateway.bodies[2]["tools"]
    assert {headers["x-weft-program"] for headers in gateway.headers} == {"run-0"}
    assert result.extended == 1
    assert result.saved_s == {"prefill": 0.25}


async def test_reported_tool_runs_during_the_answer():
    """The answer waits for the tools, so that nothing is left to wait for or to prefill."""
    gateway = Gateway(events=(0, 1))
    result = await play(gateway, DISPATCH, hold=True)
    assert result.errors == []
    assert result.dispatched == 2
    assert result.extended == 0
    assert gateway.log.index(("end", "0.01")) < gateway.log.index(("answer", "ended"))
    assert ("POST", "/v1/hints/prefill") not in gateway.log


async def test_unreported_tool_runs_after_the_answer():
    result = await play(Gateway(events=(0,)), DISPATCH)
    assert result.dispatched == 1
    assert result.tool_s > 0
    assert result.extended == 1


async def test_gateway_sets_tags_in_the_last_row():
    gateway = Gateway()
    await play(gateway, TAGS)
    assert all("weft" not in body for body in gateway.bodies)


@pytest.mark.parametrize(
    ("gateway", "message"),
    [
        (Gateway(answer='[{"name": "other"}]'), "differs from the forced calls"),
        (Gateway(refuse="/extend"), "409"),
        (Gateway(refuse="/hints/prefill"), "409"),
        (Gateway(refuse="/story"), "409"),
    ],
)
async def test_failures_are_errors_of_their_request(gateway, message):
    result = await play(gateway, SPLITTING)
    assert len(result.errors) == 1
    assert message in result.errors[0]
    assert gateway.log[-1][0] == "DELETE", "its program is still ended"


async def test_answer_of_another_length_is_an_error():
    result = await play(Gateway(), BASELINE, final_tokens=99)
    assert "received 4 of 99 tokens" in result.errors[0]
