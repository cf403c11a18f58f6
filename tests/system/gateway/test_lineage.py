"""A real gateway assigns calls without an id to programs by their messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer

KEYS = ("own", "a", "b")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SYSTEM = {"role": "system", "content": "You are an airline's agent. Follow the policy to the word."}


def chat(answer: str, call: str = "") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if call:
        function = {"name": "find", "arguments": call}
        message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    return {"choices": [{"index": 0, "message": message}]}


def streamed(answer: str) -> list[bytes]:
    words = [{"choices": [{"index": 0, "delta": {"content": w + " "}}]} for w in answer.split()]
    return [*(b"data: %b\n\n" % json.dumps(w).encode() for w in words), b"data: [DONE]\n\n"]


def engine_script(*answers: str):
    """Return the script of an engine that gives these answers in order, streamed on request."""
    remaining = iter(answers)

    async def script(wire: Any, request: Any) -> None:
        answer = next(remaining)
        if request.json.get("stream"):
            await wire.stream(*streamed(answer))
        else:
            await wire.plain(chat(answer))

    return script


async def program_of(gateway: Any, *messages: Any, **body: Any) -> str:
    got = await gateway.call(body={"messages": [SYSTEM, *messages], **body})
    assert got.status_code == 200
    return str(got.headers["x-weft-program"])


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def test_a_session_id_takes_precedence_over_the_messages(engine: Any, weft: Any) -> None:
    answers = ("Which flight do you mean?", "Thank you.")
    async with engine(script=engine_script(*answers)) as stub, weft(stub) as gateway:
        asked = user("I want to change my flight.")
        await program_of(gateway, asked)
        turns = [SYSTEM, asked, assistant(answers[0]), user("BA 117")]
        got = await gateway.call(body={"messages": turns}, headers={"x-session-id": "mine"})
        assert got.headers["x-weft-program"] == "mine"


async def test_tenants_never_share_a_program(engine: Any, weft: Any) -> None:
    answers = ("Which flight do you mean?", "Which flight do you mean?", "x")
    async with engine(script=engine_script(*answers)) as stub, weft(stub) as gateway:
        turns: list[Any] = [SYSTEM, user("I want to change my flight.")]
        keys = [{"authorization": f"Bearer {name}"} for name in "ab"]
        mine = await gateway.call(body={"messages": turns}, headers=keys[0])
        turns += [assistant(answers[0]), user("BA 117")]
        theirs = await gateway.call(body={"messages": turns}, headers=keys[1])
        assert mine.headers["x-weft-program"] != theirs.headers["x-weft-program"]


async def test_gateways_on_one_redis_share_lineage(tmp_path: Path, engine: Any, weft: Any) -> None:
    redis = RedisServer(tmp_path)
    answers = ("Which flight is it that you mean, please?", "Thank you.")
    async with (
        engine(script=engine_script(*answers)) as stub,
        weft(stub, redis_url=redis.url) as one,
        weft(stub, redis_url=redis.url) as two,
    ):
        asked = user("I want to change my flight.")
        first = await program_of(one, asked)
        assert await program_of(two, asked, assistant(answers[0]), user("BA 117")) == first
    redis.kill()


async def test_a_shortened_history_joins_no_program_whose_model_said_the_same(
    engine: Any, weft: Any
) -> None:
    policy = [f"Rule number {number} of the airline applies to this ticket" for number in range(40)]
    more = [f"An exception numbered {number} applies to this ticket too" for number in range(40)]
    answers = [". ".join(policy), ". ".join([*policy, more[0]]), ". ".join(more), "Done.", "Done."]
    async with engine(script=engine_script(*answers)) as stub, weft(stub) as gateway:
        one = [user("I want to change my flight."), assistant(answers[0]), user("Change it.")]
        two = [user("I want to cancel my flight."), assistant(answers[1]), user("Any exception?")]
        first, second = [await program_of(gateway, turns[0]) for turns in (one, two)]
        assert first != second
        assert await program_of(gateway, *two) == second
        # Its client keeps the last messages only.
        two += [assistant(answers[2]), user("Cancel it.")]
        assert await program_of(gateway, *two[1:]) == second
        assert await program_of(gateway, *one) == first
