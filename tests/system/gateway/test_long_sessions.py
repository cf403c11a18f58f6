"""Sessions with long, growing bodies: engines get what clients sent, and no session loses its
program, its tags or its replica.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest
from support.edited_sessions import EDITS, PATHS, Client
from weft_gateway.api import body
from weft_gateway.api import call as calls
from weft_gateway.programs.identity import tenant_of
from weft_gateway.transcripts import grid

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("own", "mine", "theirs")
MINE, THEIRS = {"authorization": "Bearer mine"}, {"authorization": "Bearer theirs"}
SAID = "Yes, I read it."


async def answer(wire: Any, request: Any) -> None:
    if request.target == "/v1/messages":
        await wire.plain({"role": "assistant", "content": [{"type": "text", "text": SAID}]})
    elif request.target == "/v1/responses":
        part = {"type": "output_text", "text": SAID}
        await wire.plain({"output": [{"type": "message", "role": "assistant", "content": [part]}]})
    else:
        await wire.plain({"choices": [{"message": {"role": "assistant", "content": SAID}}]})


def chat(turns: list[str]) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "system", "content": "Be brief. " * 300}]
    for turn in turns:
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": SAID}]
    return "/v1/chat/completions", {"messages": messages[:-1], "model": "tiny"}


def messages(turns: list[str]) -> tuple[str, dict[str, Any]]:
    """Return a call whose last part is marked for the cache, as Claude Code marks it."""
    asked: list[dict[str, Any]] = []
    for turn in turns:
        asked.append({"role": "user", "content": [{"type": "text", "text": turn}]})
        asked.append({"role": "assistant", "content": [{"type": "text", "text": SAID}]})
    asked.pop()
    asked[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    system = [{"type": "text", "text": "Be brief. " * 300}]
    return "/v1/messages", {"model": "tiny", "messages": asked, "system": system, "max_tokens": 9}


def responses(turns: list[str]) -> tuple[str, dict[str, Any]]:
    _, body = chat(turns)
    return "/v1/responses", {"model": "tiny", "input": body["messages"], "store": False}


def texts(count: int, size: int = 3000) -> list[str]:
    return [
        f"turn {number} ünïcödé " + "lines of\ncode; " * (size // 15) for number in range(count)
    ]


async def call(
    gateway: Any, form: Any, turns: list[str], headers: dict[str, str], **more: Any
) -> tuple[bytes, str]:
    """Make a call. Returns its body and its program."""
    path, body = form(turns)
    raw = json.dumps(body | more, ensure_ascii=False).encode()
    sent = {"content-type": "application/json", **headers}
    got = await gateway.client.post(path, content=raw, headers=sent)
    assert got.status_code == 200, got.text
    return raw, got.headers["x-weft-program"]


def tags(request: Any) -> list[int]:
    return request.json["vllm_xargs"]["weft_tags"][1::2]


@pytest.mark.parametrize("form", [chat, messages, responses])
async def test_growing_calls_arrive_as_sent_with_the_tags_of_whole_ones(
    form: Any, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=answer) as stub,
        engine(script=answer) as other,
        weft(stub) as gateway,
        weft(other, transcript_bytes=0) as without,
    ):
        programs = set()
        for number in range(5):
            turns = [*texts(8), *map(str, range(number))]
            raw, program = await call(gateway, form, turns, MINE)
            programs.add(program)
            _, known = gateway.parts.transcripts.find(tenant_of("mine"), raw)
            assert known is not None
            assert known.last >= 2 * number + 13, "the next call reads what follows these"
            assert stub.requests[-1].raw.endswith(raw[1:])
            await call(without, form, turns, MINE)
            assert tags(stub.requests[-1]) == tags(other.requests[-1])
        assert len(programs) == 1, "lineage finds the program"


async def test_members_of_weft_are_taken_out_of_long_bodies(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        for number in range(3):
            turns = [*texts(8), *map(str, range(number))]
            raw, program = await call(gateway, chat, turns, MINE, session_id="run", priority=3)
            sent = stub.requests[-1].json
            assert sent["messages"] == json.loads(raw)["messages"]
            assert program == "run"
            assert not {"session_id", "priority"} & sent.keys()


async def test_a_stored_answer_continues_a_long_body(engine: Any, weft: Any) -> None:
    async def stored(wire: Any, request: Any) -> None:
        await wire.plain({"id": f"resp_{len(stub.requests):032x}", "output": []})

    async with engine(script=stored) as stub, weft(stub) as gateway:
        for number in range(2):
            turns = [*texts(8), *map(str, range(number))]
            path, body = responses(turns)
            body["store"] = True
            first = await gateway.client.post(path, json=body, headers=MINE)
            more = {"input": "And?", "previous_response_id": first.json()["id"], "model": "tiny"}
            await gateway.client.post(path, json=more, headers=MINE)
            *before, last = stub.requests[-1].json["input"]
            assert before == body["input"]
            assert last["content"] == "And?"


async def test_an_alias_of_a_model_is_replaced_in_long_bodies(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub, model_aliases="own=tiny") as gateway:
        for number in range(3):
            turns = [*texts(8), *map(str, range(number))]
            raw, _ = await call(gateway, chat, turns, MINE, model="own")
            sent = stub.requests[-1]
            assert sent.json["model"] == "tiny"
            assert sent.json["messages"] == json.loads(raw)["messages"]


async def test_tenants_know_nothing_of_each_other(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        raw, _ = await call(gateway, chat, texts(8), MINE)
        find = gateway.parts.transcripts.find
        assert find(tenant_of("mine"), raw)[1] is not None
        assert find(tenant_of("theirs"), raw)[1] is None
        await call(gateway, chat, texts(8), THEIRS)
        assert len(gateway.parts.transcripts) == 2


async def test_nothing_is_kept_of_a_program_that_has_ended(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        for session in ("one", "two"):
            await call(gateway, chat, texts(8), {**MINE, "x-session-id": session})
        assert len(gateway.parts.transcripts) == 2
        await gateway.client.delete("/v1/sessions/one", headers=MINE)
        assert len(gateway.parts.transcripts) == 1


async def test_a_session_of_2_mb_and_3000_messages_keeps_program_tags_and_replica(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=answer) as one,
        engine(script=answer) as two,
        weft(one, two, balancer="locality") as gateway,
    ):
        found = set()
        for number in range(3):
            turns = [*texts(1500, 1300), *map(str, range(number))]
            raw, program = await call(gateway, chat, turns, MINE)
            assert len(raw) > 2_000_000
            last = [stub.requests[-1] for stub in (one, two) if stub.requests][-1]
            assert tags(last) == [4, 3], "the system prompt, and a question at the end"
            found.add((program, last.headers["host"]))
        assert len(found) == 1
        assert gateway.parts.transcripts.total < 160_000


async def test_a_session_of_850_kb_takes_less_than_64_kb(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        for number in range(4):
            turns = [*texts(300, 2800), *map(str, range(number))]
            raw, _ = await call(gateway, chat, turns, MINE)
        assert len(raw) > 850_000
        assert len(gateway.parts.transcripts) == 1
        assert gateway.parts.transcripts.total < 64_000


@pytest.mark.parametrize("session", ["", "run"])
@pytest.mark.parametrize("api", PATHS)
async def test_edited_bodies_and_branches_arrive_as_without_transcripts(
    api: str, session: str, engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short bodies are compared, at many positions.
    monkeypatch.setattr(grid, "_POSITIONS", tuple(256 * 9**step // 8**step for step in range(64)))
    monkeypatch.setattr(grid, "LEAST_BYTES", 512)
    for module in (body, calls):
        monkeypatch.setattr(module, "LIGHT_BYTES", 256)
    random, order = Random(f"{api} {session}"), Random(api)

    async def later(wire: Any, request: Any) -> None:
        await asyncio.sleep(order.random() / 100)
        await answer(wire, request)

    async def send(gateway: Any, raw: bytes, name: str) -> tuple[int, bytes, str]:
        headers = {"content-type": "application/json", "x-request-id": name, **MINE}
        if session:
            headers["x-session-id"] = session
        got = await gateway.client.post(PATHS[api], content=raw, headers=headers)
        return got.status_code, got.content, got.headers.get("x-weft-program", "")

    def arrived(request: Any, bodies: list[bytes]) -> str:
        """Return what an engine got: the body, its tags, and which bytes of the client end it."""
        found = request.json
        tags = found.pop("vllm_xargs")["weft_tags"][1::2]
        return json.dumps([found, tags, [request.raw.endswith(raw[1:]) for raw in bodies]])

    async with (
        engine(script=later, models=("m",)) as one,
        engine(script=later, models=("m",)) as two,
        weft(one) as with_transcripts,
        weft(two, transcript_bytes=0) as without,
    ):
        client, names = Client(random, api), dict[str, str]()
        for number in range(24):
            bodies = [client.body()]
            for _ in range(random.choice([0, 0, 2])):
                branch = Client(random, api)
                branch.messages = client.messages[: -random.randrange(1, 6)] + branch.messages[-3:]
                branch.others, branch.style = client.others, client.style
                branch.first = client.first
                bodies.append(branch.body())
            bodies[0] = random.choice(EDITS)(client, bodies[0])
            named = [(raw, f"{number}-{at}") for at, raw in enumerate(bodies)]
            seen = []
            for stub, gateway in ((one, with_transcripts), (two, without)):
                stub.requests.clear()
                if session:
                    got = await asyncio.gather(*[send(gateway, *each) for each in named])
                else:
                    # Lineage depends on the order of calls.
                    got = [await send(gateway, *each) for each in named]
                seen.append((got, sorted([arrived(each, bodies) for each in stub.requests])))
            (got, there), (expected, wanted) = seen
            assert there == wanted
            for one_answer, other in zip(got, expected, strict=True):
                assert one_answer[:2] == other[:2]
                assert names.setdefault(one_answer[2], other[2]) == other[2], "the same programs"
        assert len(with_transcripts.parts.transcripts) > 0
