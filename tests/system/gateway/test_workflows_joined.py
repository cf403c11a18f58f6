"""Runs of one workflow that share a process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from support.workflow_runs import (
    SAY,
    begin,
    chat,
    completed,
    created,
    ended,
    headers_of,
    output,
)

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("sk-a", "sk-b")
WINDOW_MS = 60_000


def held(gate: asyncio.Event) -> Any:
    """Return a script that answers once the gate is open."""

    async def script(wire: Any, request: Any) -> None:
        await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    return script


def rows(*texts: str) -> list[dict[str, str]]:
    return [{"text": text} for text in texts]


def said(stub: Any) -> list[str]:
    """Return the prompts that an engine has received."""
    return sorted(one.json["messages"][0]["content"] for one in stub.requests)


async def test_runs_share_a_process_and_equal_calls(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as gateway:
        client, live = gateway.client, gateway.parts.offline.flows.runner.live
        workflow = await created(client)
        one = await begin(client, workflow, rows=rows("a", "b"), batch_ms=WINDOW_MS)
        await until(lambda: len(stub.requests) == 2)
        two = await begin(client, workflow, rows=rows("c", "a"), batch_ms=WINDOW_MS)
        assert two["batch_ms"] == WINDOW_MS
        await until(lambda: len(stub.requests) == 3)
        group = live[one["id"]]
        assert live[two["id"]] is group
        gate.set()
        first, second = [await ended(client, run["id"]) for run in (one, two)]
        assert said(stub) == ["a", "b", "c"]
        assert [first["status"], second["status"]] == ["completed"] * 2
        assert [row["said"] for row in await output(client, one["id"])] == ["re: a", "re: b"]
        assert [row["said"] for row in await output(client, two["id"])] == ["re: c", "re: a"]
        # The run that began an equal call has its tokens.
        assert [one["usage"]["total_tokens"] for one in (first, second)] == [14, 7]
        figures = second["operators"]["said"]
        assert (figures["done"], figures["calls"], figures["cached"]) == (2, 1, 1)
        # The process is still there, and has the answers.
        three = await begin(client, workflow, rows=rows("b"), batch_ms=WINDOW_MS)
        assert live[three["id"]] is group
        third = await ended(client, three["id"])
        assert (third["row_counts"]["completed"], third["usage"]["total_tokens"]) == (1, 0)
        assert len(stub.requests) == 3
        assert len(gateway.parts.offline.flows.runner._groups) == 1


async def test_a_run_joins_only_its_like(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()
    async with (
        engine(script=held(gate)) as stub,
        weft(stub, workflow_runs=8, workflow_runs_per_tenant=8) as gateway,
    ):
        client, live = gateway.client, gateway.parts.offline.flows.runner.live
        workflow = await created(client)
        early = await begin(client, workflow, rows=rows("a"), batch_ms=1)
        await until(lambda: not live[early["id"]].takes(live[early["id"]].first))
        first = await begin(client, workflow, rows=rows("a"), batch_ms=WINDOW_MS)
        joined = await begin(client, workflow, rows=rows("a"), batch_ms=WINDOW_MS)
        alone = await begin(client, workflow, rows=rows("a"))
        other = await begin(client, await created(client), rows=rows("a"), batch_ms=WINDOW_MS)
        foreign = await begin(
            client, await created(client, key="sk-b"), "sk-b", rows=rows("a"), batch_ms=WINDOW_MS
        )
        groups = [live[run["id"]] for run in (early, first, alone, other, foreign)]
        assert len(set(groups)) == 5
        assert live[joined["id"]] is live[first["id"]]
        await until(lambda: len(stub.requests) == 5)
        gate.set()
        for run in (early, first, joined, alone, other):
            assert (await ended(client, run["id"]))["status"] == "completed"
        assert (await ended(client, foreign["id"], "sk-b"))["status"] == "completed"
        assert len(stub.requests) == 5


async def test_a_cancelled_or_stopped_run_leaves_the_others(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as gateway:
        client, live = gateway.client, gateway.parts.offline.flows.runner.live
        workflow = await created(client)
        gone = await begin(client, workflow, rows=rows("a", "b"), batch_ms=WINDOW_MS)
        await until(lambda: len(stub.requests) == 2)
        kept = await begin(client, workflow, rows=rows("a", "c"), batch_ms=WINDOW_MS)
        await until(lambda: len(stub.requests) == 3)
        poor = await begin(client, workflow, rows=rows("d"), batch_ms=WINDOW_MS, budget_tokens=1)
        stopped = await ended(client, poor["id"])
        assert (stopped["status"], stopped["error"]["code"]) == ("stopped", "token_budget")
        await client.post(f"/v1/runs/{gone['id']}/cancel", headers=headers_of("sk-a"))
        assert (await ended(client, gone["id"]))["status"] == "cancelled"
        # The call that only the cancelled run needed is aborted, the shared one is not.
        await until(lambda: gateway.in_flight() == 2)
        gate.set()
        run = await ended(client, kept["id"])
        assert (run["status"], run["usage"]["total_tokens"]) == ("completed", 14)
        assert [row["said"] for row in await output(client, kept["id"])] == ["re: a", "re: c"]
        assert await output(client, gone["id"]) == []
        assert said(stub) == ["a", "b", "c"]
        assert not live


async def test_runs_of_a_lost_process_continue_alone(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as gateway:
        client, live = gateway.client, gateway.parts.offline.flows.runner.live
        workflow = await created(client)
        runs = [await begin(client, workflow, rows=rows(text), batch_ms=WINDOW_MS) for text in "ab"]
        await until(lambda: len(stub.requests) == 2)
        one, two = (run["id"] for run in runs)
        lost = live[one]
        assert live[two] is lost
        lost.child.kill()
        await until(lambda: {one, two} <= live.keys() and lost not in live.values())
        assert live[one] is not live[two]
        # A later run does not join them.
        three = await begin(client, workflow, rows=rows("c"), batch_ms=WINDOW_MS)
        gate.set()
        for name, text in zip((one, two, three["id"]), "abc", strict=True):
            assert (await ended(client, name))["status"] == "completed"
            assert [row["said"] for row in await output(client, name)] == [f"re: {text}"]


async def test_rows_that_begin_alike_share_a_replica(engine: Any, weft: Any, until: Any) -> None:
    text = """
weft: 1
inputs: {page: str, question: str}
ops:
  said: {llm: {user: "{{ page }} {{ question }}"}}
outputs: {said: said}
"""
    gate = asyncio.Event()
    async with (
        engine(script=held(gate)) as first,
        engine(script=held(gate)) as second,
        weft(first, second, batch_calls=8) as gateway,
    ):
        client = gateway.client
        workflow = await created(client, text)
        runs = []
        for number, page in enumerate("abab"):
            row = {"page": page, "question": str(number)}
            runs.append(await begin(client, workflow, rows=[row], batch_ms=WINDOW_MS))
            await until(lambda count=number + 1: len(first.requests + second.requests) == count)
        assert sorted([said(first), said(second)]) == [["a 0", "a 2"], ["b 1", "b 3"]]
        gate.set()
        for run in runs:
            assert (await ended(client, run["id"]))["status"] == "completed"


async def test_an_idle_process_makes_room(engine: Any, weft: Any, until: Any) -> None:
    async with engine(script=chat) as stub, weft(stub, workflow_runs=1) as gateway:
        client, runner = gateway.client, gateway.parts.offline.flows.runner
        one = await begin(client, await created(client), rows=rows("a"), batch_ms=WINDOW_MS)
        await ended(client, one["id"])
        assert len(runner._groups) == 1
        two = await begin(client, await created(client), rows=rows("b"))
        assert (await ended(client, two["id"]))["status"] == "completed"
        await until(lambda: not runner._groups)


async def test_a_wrong_window_is_refused(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway:
        path = f"/v1/workflows/{await created(gateway.client, SAY)}/runs"
        for value, words in (
            (-1, "greater than or equal to 0"),
            (60_001, "less than or equal to 60000"),
            ("1s", "valid integer"),
            (1.5, "valid integer"),
            (True, "valid integer"),
        ):
            body = {"rows": rows("a"), "batch_ms": value}
            answer = await gateway.client.post(path, json=body, headers=headers_of("sk-a"))
            assert answer.status_code == 400, value
            error = answer.json()["error"]
            assert "batch_ms" in error["message"]
            assert words in error["message"]
        assert stub.requests == []


async def test_every_gateway_of_a_folder_reads_and_cancels_runs(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()

    async def some(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"] != "a":
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    async with (
        engine(script=some) as stub,
        weft(stub) as owner,
        weft(stub) as other,
    ):
        workflow = await created(owner.client)
        assert not other.parts.batches.store.owner
        for creator, reader in ((owner, other), (other, owner)):
            del stub.requests[:]
            run = await begin(creator.client, workflow, rows=rows("a", "b"))
            path = f"/v1/runs/{run['id']}"
            await until(lambda: len(stub.requests) == 2)

            await completed(reader.client, run["id"], 1)
            listed = await reader.client.get("/v1/runs", headers=headers_of("sk-a"))
            assert run["id"] in [one["id"] for one in listed.json()["data"]]
            shown = await reader.client.post(f"{path}/cancel", headers=headers_of("sk-a"))
            assert shown.json()["status"] == "cancelling"
            for gateway in (owner, other):
                assert (await ended(gateway.client, run["id"]))["status"] == "cancelled"
                assert [row["said"] for row in await output(gateway.client, run["id"])] == ["re: a"]
