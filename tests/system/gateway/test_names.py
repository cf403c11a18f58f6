"""Names that clients send for caches, routers and logs: they identify no program."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SYSTEM = "You are a clerk. Be brief, and follow the policy to the letter. "
NAMES = ("prompt_cache_key", "x-correlation-id", "x-session-affinity", "x-smg-routing-key")


async def answer(wire: Any, request: Any) -> None:
    """Answer each call in the same few words."""
    await wire.plain({"choices": [{"index": 0, "message": said("Done.")}]})


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def sent(gateway: Any, name: str, value: str, body: dict[str, Any]) -> dict[str, str]:
    """Make a call with this name, and return its program and replica."""
    headers = {name: value} if name.startswith("x-") else {}
    got = await gateway.call(body=body if headers else body | {name: value}, headers=headers)
    assert got.status_code == 200
    return {about: got.headers[f"x-weft-{about}"] for about in ("program", "replica")}


def chat(*texts: str, repeated: int = 1) -> dict[str, Any]:
    """Return a conversation in which the clerk has given the same answer to each text but the
    last."""
    messages: list[dict[str, str]] = [{"role": "system", "content": SYSTEM * repeated}]
    for text in texts:
        messages += [{"role": "user", "content": text}, said("Done.")]
    return {"messages": messages[:-1]}


@pytest.mark.parametrize("repeated", [1, 400], ids=["short", "long"])
@pytest.mark.parametrize("name", NAMES)
async def test_conversations_with_one_name_are_separate_programs_on_all_replicas(
    name: str, repeated: int, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=answer) as one,
        engine(script=answer) as two,
        weft(one, two, balancer="locality") as gateway,
    ):
        found = [
            await sent(gateway, name, "support-v3", chat(f"Case {case}", repeated=repeated))
            for case in range(48)
        ]
    assert len({call["program"] for call in found}) == 48
    used = Counter(call["replica"] for call in found)
    assert min(used["r0"], used["r1"]) >= 8


@pytest.mark.parametrize("name", NAMES)
async def test_a_conversation_with_a_new_name_per_request_is_one_program(
    name: str, engine: Any, weft: Any
) -> None:
    texts = [f"Step {number}" for number in range(8)]
    async with engine(script=answer) as stub, weft(stub) as gateway:
        found = [
            await sent(gateway, name, f"request-{number}", chat(*texts[: number + 1]))
            for number in range(8)
        ]
    assert len({call["program"] for call in found}) == 1


async def test_a_malformed_name_for_placement_refuses_no_call(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        for value in ("x" * 300, ["a"], 1.5):
            got = await gateway.call(body=chat("Hello.") | {"prompt_cache_key": value})
            assert got.status_code == 200
            assert stub.requests[-1].json["prompt_cache_key"] == value


async def test_calls_that_are_not_read_follow_their_name_unless_its_replica_is_busy(
    engine: Any, weft: Any, until: Any
) -> None:
    go, held = asyncio.Event(), []

    async def script(wire: Any, request: Any) -> None:
        if request.json.get("user") == "hold":
            held.append(request)
            await go.wait()
        await answer(wire, request)

    async with (
        engine(script=script) as one,
        engine(script=script) as two,
        weft(one, two, balancer="locality", read_body_bytes=65_536) as gateway,
    ):

        async def turn(case: int, **more: Any) -> dict[str, str]:
            body = chat(f"Case {case}", repeated=1200) | more
            return await sent(gateway, "prompt_cache_key", f"case-{case}", body)

        first = [await turn(case) for case in range(8)]
        second = [await turn(case) for case in range(8)]
        assert [call["replica"] for call in first] == [call["replica"] for call in second]
        assert len({call["program"] for call in first + second}) == 16
        calls = [asyncio.create_task(turn(7, user="hold")) for _ in range(5)]
        await until(lambda: len(held) == 5)
        assert (await turn(7))["replica"] != first[7]["replica"]
        go.set()
        await asyncio.gather(*calls)
