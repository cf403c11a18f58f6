"""What turns out late about whose calls came before: it is told in the story where it belongs."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ALICE = "The gate of the flight to Lisbon is B12, and boarding begins at ten past nine."
BOB = "The hotel by the river has two rooms left, and breakfast ends at half past ten."


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def storing():
    """An engine that stores its answers, and knows each again."""
    numbers = count()
    known: set[str] = set()

    async def script(wire: Any, request: Any) -> None:
        before = request.json.get("previous_response_id")
        if before and before not in known:
            await wire.plain({"error": {"message": "not here"}}, "404 Not Found")
            return
        name = f"resp_{next(numbers):08}"
        known.add(name)
        said = {"type": "output_text", "text": f"This is the answer of {name}."}
        output = [{"type": "message", "role": "assistant", "content": [said]}]
        await wire.plain({"id": name, "object": "response", "output": output})

    return script


async def respond(gateway: Any, previous: str = "", **headers: str) -> tuple[str, str]:
    """A call of the Responses API: its program, and its answer's id."""
    body = {"model": "tiny", "input": "How do I tie a knot?"}
    if previous:
        body |= {"input": "And then?", "previous_response_id": previous}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    got = await gateway.client.post("/v1/responses", json=body, headers=named)
    assert got.status_code == 200, got.text
    return got.headers["x-weft-program"], got.json()["id"]


async def story(gateway: Any, program: str) -> list[tuple[str, str | None]]:
    """Thread and parent of each of a program's calls."""
    got = await gateway.client.get(f"/v1/sessions/{program}/story")
    assert got.status_code == 200
    return [(each["thread"], each["parent"]) for each in got.json()["receipts"]]


@pytest.mark.parametrize("lineage", [True, False])
async def test_three_runs_of_one_question_are_three_programs(engine, weft, lineage):
    async with engine(script=storing()) as stub, weft(stub, lineage=lineage) as gateway:
        first = [await respond(gateway) for _ in range(3)]
        second = [await respond(gateway, answer) for _, answer in first]
        third = [await respond(gateway, answer) for _, answer in second]
        programs = [program for program, _ in second]
        assert len(set(programs)) == 3
        assert [program for program, _ in third] == programs
        for program in programs:
            # The first call too, which was taken for a repeat until the second came.
            assert await story(gateway, program) == [("main", None)] * 3
            session = (await gateway.client.get(f"/v1/sessions/{program}")).json()
            assert (session["calls"], session["errors"]) == (3, 0)
        listed = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert sorted(session["id"] for session in listed) == sorted(programs), "each told once"
        assert [session["calls"] for session in listed] == [3] * 3


async def test_a_call_goes_on_in_the_thread_of_the_answer_that_it_continues(engine, weft):
    async with engine(script=storing()) as stub, weft(stub) as gateway:
        _, answer = await respond(gateway, x_weft_program="p", x_weft_thread="search")
        program, more = await respond(gateway, answer)
        await respond(gateway, more)
        assert program == "p"
        assert await story(gateway, "p") == [("search", None)] * 3


async def test_programs_that_are_joined_are_told_in_one_story_with_a_thread_each(engine, weft):
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
        assert await story(gateway, alice) == await story(gateway, bob) == [("main", None)]
        # One call reads both answers: they were parts of one program all along.
        both = await call(user(f"Summarise.\n{ALICE}\n{BOB}"))
        (other,) = {alice, bob} - {both}
        threads = [thread for thread, _ in await story(gateway, both)]
        assert sorted(threads[:2]) == sorted(["main", other]), "each once, under a name of its own"
        assert len(set(threads)) == 3
        assert (await gateway.client.get(f"/v1/sessions/{other}/story")).status_code == 404
        (session,) = (await gateway.client.get("/v1/sessions")).json()["data"]
        assert (session["id"], session["calls"]) == (both, 3)
        # The part goes on, and still is a thread of its own.
        asked, answered = ("gate", ALICE) if other == alice else ("room", BOB)
        again = await call(
            user(f"Find a {asked}, please."),
            {"role": "assistant", "content": answered},
            user("Thanks."),
        )
        assert again == both
        assert (await story(gateway, both))[-1] == (other, None)
