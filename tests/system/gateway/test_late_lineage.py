"""Traces of programs that lineage assigns or joins late include the earlier calls."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ALICE = "The gate of the flight to Lisbon is B12, and boarding begins at ten past nine."
BOB = "The hotel by the river has two rooms left, and breakfast ends at half past ten."


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def storing_engine():
    """Return the script of an engine that stores its responses and continues them."""
    numbers = count()
    known: set[str] = set()

    async def script(wire: Any, request: Any) -> None:
        before = request.json.get("previous_response_id")
        if before and before not in known:
            await wire.plain({"error": {"message": "not here"}}, "404 Not Found")
            return
        name = f"resp_{next(numbers):08}"
        known.add(name)
        text = {"type": "output_text", "text": f"This is the answer of {name}."}
        output = [{"type": "message", "role": "assistant", "content": [text]}]
        await wire.plain({"id": name, "object": "response", "output": output})

    return script


async def respond(gateway: Any, previous: str = "", **headers: str) -> tuple[str, str]:
    """Make a call of the Responses API and return its program and the id of its response."""
    body = {"model": "tiny", "input": "How do I tie a knot?"}
    if previous:
        body |= {"input": "And then?", "previous_response_id": previous}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    got = await gateway.client.post("/v1/responses", json=body, headers=named)
    assert got.status_code == 200, got.text
    return got.headers["x-weft-program"], got.json()["id"]


async def trace(gateway: Any, program: str) -> list[tuple[str, str | None]]:
    """Return the thread and parent of each call of a program."""
    got = await gateway.client.get(f"/v1/sessions/{program}/story")
    assert got.status_code == 200
    return [(each["thread"], each["parent"]) for each in got.json()["receipts"]]


@pytest.mark.parametrize("lineage", [True, False])
async def test_three_runs_of_one_question_are_three_programs(engine, weft, lineage):
    async with engine(script=storing_engine()) as stub, weft(stub, lineage=lineage) as gateway:
        first = [await respond(gateway) for _ in range(3)]
        second = [await respond(gateway, answer) for _, answer in first]
        third = [await respond(gateway, answer) for _, answer in second]
        programs = [program for program, _ in second]
        assert len(set(programs)) == 3
        assert [program for program, _ in third] == programs
        for program in programs:
            # The first call is included. It looked like a repeat until the second call.
            assert await trace(gateway, program) == [("main", None)] * 3
            session = (await gateway.client.get(f"/v1/sessions/{program}")).json()
            assert (session["calls"], session["errors"]) == (3, 0)
        listed = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert sorted(session["id"] for session in listed) == sorted(programs), (
            "a program is missing or listed twice"
        )
        assert [session["calls"] for session in listed] == [3] * 3


async def test_a_call_belongs_to_the_thread_of_its_previous_response(engine, weft):
    async with engine(script=storing_engine()) as stub, weft(stub) as gateway:
        _, answer = await respond(gateway, x_weft_program="p", x_weft_thread="search")
        program, more = await respond(gateway, answer)
        await respond(gateway, more)
        assert program == "p"
        assert await trace(gateway, "p") == [("search", None)] * 3


async def test_joined_programs_share_a_trace_with_one_thread_each(engine, weft):
    answers = iter((ALICE, BOB, "Noted.", "Both are settled.", "Good."))

    async def script(wire: Any, request: Any) -> None:
        message = {"role": "assistant", "content": next(answers)}
        await wire.plain({"choices": [{"index": 0, "message": message}]})

    async def call(*messages: dict[str, str]) -> str:
        got = await gateway.call(body={"messages": list(messages)})
        return str(got.headers["x-weft-program"])

    async with engine(script=script) as stub, weft(stub) as gateway:
        alice = await call(user("Find a gate, please."))
        bob = await call(user("Find a room, please."))
        assert alice != bob
        assert await trace(gateway, alice) == await trace(gateway, bob) == [("main", None)]
        # A call that reads both answers shows that they belong to one program.
        both = await call(user(f"Summarise.\n{ALICE}\n{BOB}"))
        (other,) = {alice, bob} - {both}
        threads = [thread for thread, _ in await trace(gateway, both)]
        assert sorted(threads[:2]) == sorted(["main", other]), (
            "a joined part is missing or listed twice"
        )
        assert len(set(threads)) == 3
        assert (await gateway.client.get(f"/v1/sessions/{other}/story")).status_code == 404
        (session,) = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert (session["id"], session["calls"]) == (both, 3)
        assert (await gateway.client.get(f"/v1/sessions/{both}")).json() == session
        # A later call of the joined part stays in its thread.
        asked, answered = ("gate", ALICE) if other == alice else ("room", BOB)
        again = await call(
            user(f"Find a {asked}, please."),
            {"role": "assistant", "content": answered},
            user("Thanks."),
        )
        assert again == both
        assert (await trace(gateway, both))[-1] == (other, None)
