"""Playing programs against a small gateway that records each call and its time."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from support.serving import client_of
from support.waiting import DEADLINE_S
from weft_bench.drive.player import Gaps, Player, spans
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.parts import token_ids
from weft_bench.workloads.schema import Part, TraceCall

# Two parallel calls, then one that joins them, then one more.
DIAMOND = [(), (), (0, 1), None]


class Gateway:
    """Answers a call when its parallel calls are open too. sides: their number, for each call in
    the program's order. fails: calls that get a 500.
    """

    def __init__(self, sides: list[int], fails: tuple[int, ...] = ()) -> None:
        self.sides, self.fails = sides, fails
        self.open: set[int] = set()
        self.done: list[int] = []
        self.begun_after: dict[int, set[int]] = {}
        self.bodies: dict[int, dict] = {}
        self.deleted: list[str] = []
        self.changed = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/weft/state":
            counts = {"displacements": len(self.done)}
            return httpx.Response(200, json={"replicas": {"r": {"answer": {"engines": [counts]}}}})
        if request.url.path.startswith("/v1/sessions"):
            if request.method == "DELETE":
                self.deleted.append(request.url.path)
            keys = ("service_s", "waiting_s", "prompt_tokens", "cached_tokens", "preemptions")
            return httpx.Response(200, json=dict.fromkeys(keys, 7))
        body = json.loads(request.content)
        number = len(body["prompt"]) - 1
        self.bodies[number] = body
        self.begun_after[number] = set(self.done)
        self.open.add(number)
        self.changed.set()
        async with asyncio.timeout(DEADLINE_S):
            while number not in self.done and len(self.open) < self.sides[number]:
                self.changed.clear()
                await self.changed.wait()
        # All calls that were open together are answered, even if the first one has left.
        self.done += [n for n in self.open if n not in self.done]
        self.open.discard(number)
        if number in self.fails:
            return httpx.Response(500, text="broken")
        return httpx.Response(200, json={"usage": {"completion_tokens": 3}})


def program(after) -> ReadyProgram:
    calls = [
        ReadyCall(TraceCall(parts=(Part("a", n + 1),), after=needed), 1, 3)
        for n, needed in enumerate(after)
    ]
    return ReadyProgram("p", tuple(calls), cut=False, trimmed=False)


async def play(gateway, ready, **options):
    counted = []
    async with client_of(gateway) as client:
        player = Player(client, "m", "run", Gaps(1.0, 1.0), **options)
        played = await player.play([ready], [0.0], lambda: counted.append(1))
    (result,) = played.programs
    assert played.engines.displacements == len(gateway.done)
    return result, len(counted)


@pytest.mark.anyio
async def test_independent_calls_run_in_parallel_and_join():
    gateway = Gateway(sides=[2, 2, 1, 1])
    result, counted = await play(gateway, program(DIAMOND))
    assert result.errors == []
    assert (result.calls, result.output_tokens, counted) == (4, 12, 4)
    assert gateway.begun_after[2] >= {0, 1}
    assert gateway.begun_after[3] >= {0, 1, 2}
    assert result.preemptions == 7
    assert gateway.deleted == ["/v1/sessions/run-p"]
    assert result.finish_s > 0


@pytest.mark.anyio
async def test_chain_is_played_in_sequence():
    gateway = Gateway(sides=[1, 1, 1])
    await play(gateway, program([None, None, None]))
    assert gateway.begun_after == {0: set(), 1: {0}, 2: {0, 1}}


@pytest.mark.anyio
async def test_no_call_begins_after_an_error_and_the_session_ends():
    gateway = Gateway(sides=[2, 2, 1, 1], fails=(1,))
    result, counted = await play(gateway, program(DIAMOND))
    assert result.errors == ["500: broken"]
    assert set(gateway.bodies) == {0, 1}
    assert counted == 2
    assert gateway.deleted


@pytest.mark.anyio
async def test_program_over_the_time_limit_is_cut_and_its_session_ends():
    # The second call waits for a third parallel one, which is never sent.
    gateway = Gateway(sides=[1, 2])
    async with client_of(gateway) as client:
        player = Player(client, "m", "run", Gaps(1.0, 1.0))
        played = await player.play([program([None, None])], [0.0], lambda: None, limit_s=0.3)
    (result,) = played.programs
    assert result.cut
    assert (result.calls, result.errors) == (1, [])
    assert result.finish_s >= 0.3
    assert gateway.deleted == ["/v1/sessions/run-p"]


def test_gaps_are_scaled_and_then_limited():
    assert Gaps(0.5, 3.0).of(4.0) == 2.0
    assert Gaps(0.5, 3.0).of(40.0) == 3.0


@pytest.mark.anyio
async def test_tags_are_sent_unless_turned_off():
    call = TraceCall(parts=(Part("a", 3, "system"), Part("b", 2, "tool")), after=())
    ready = ReadyProgram("p", (ReadyCall(call, 1, 3),), cut=False, trimmed=False)
    gateway = Gateway(sides=[1] * 5)
    await play(gateway, ready)
    assert gateway.bodies[4]["weft"] == {
        "tags": [
            {"start": 0, "end": 3, "tag": "SYSTEM_PROMPT"},
            {"start": 3, "end": 5, "tag": "TOOL_OUTPUT"},
        ]
    }
    silent = Gateway(sides=[1] * 5)
    await play(silent, ready, tell_tags=False)
    assert "vllm_xargs" not in silent.bodies[4]
    assert silent.bodies[4]["weft"] == {"tags": []}


def test_span_has_the_highest_tag_of_later_spans():
    tags = [(10, "SYSTEM_PROMPT"), (20, "TOOL_OUTPUT"), (30, "USER_QUERY"), (40, "RESPONSE")]
    assert [(span["end"], span["tag"]) for span in spans(tags)] == [
        (10, "SYSTEM_PROMPT"),
        (30, "USER_QUERY"),
        (40, "RESPONSE"),
    ]
    assert spans([]) == []


async def sent(call: TraceCall) -> tuple[str, dict]:
    """Play one call. Returns its path and body."""
    prompts = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/completions"):
            prompts.append((request.url.path, json.loads(request.content)))
            return httpx.Response(200, json={"usage": {"completion_tokens": 3}})
        return await Gateway(sides=[])(request)

    ready = ReadyProgram("p", (ReadyCall(call, 20, 3),), cut=False, trimmed=False)
    async with client_of(answer) as client:
        player = Player(client, "m", "run", Gaps(1.0, 1.0))
        await player.play([ready], [0.0], lambda: None)
    ((path, body),) = prompts
    return path, body


@pytest.mark.anyio
async def test_parts_are_played_as_ids_with_the_tags_of_their_kinds():
    parts = (Part("s", 16, "system"), Part("u", 4, "user"))
    path, body = await sent(TraceCall(parts=parts, after=()))
    assert path == "/v1/completions"
    assert body["prompt"] == list(token_ids(parts))
    assert [(s["end"], s["tag"]) for s in body["weft"]["tags"]] == [
        (16, "SYSTEM_PROMPT"),
        (20, "USER_QUERY"),
    ]


@pytest.mark.anyio
async def test_messages_beside_parts_are_played_as_a_chat():
    messages = ({"role": "user", "content": "x"},)
    path, body = await sent(TraceCall(messages=messages, parts=(Part("u", 9, "user"),), after=()))
    assert (path, body["messages"]) == ("/v1/chat/completions", list(messages))
    assert "prompt" not in body
    assert "weft" not in body
