"""Runs over HTTP: their life with a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from support.http_runs import (
    SAY,
    begin,
    chat,
    completed,
    create,
    ended,
    headers_of,
    output,
    run,
    texts,
)
from support.waiting import DEADLINE_S
from weft_gateway.runs import runs as runs_module

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("sk-a", "sk-b")
WINDOW_MS = 1_500


def rows(*texts: str) -> list[dict[str, str]]:
    return [{"text": text} for text in texts]


def said(stub: Any) -> list[str]:
    """Return the prompts that an engine has received."""
    return sorted(one.json["messages"][0]["content"] for one in stub.requests)


def held(gate: asyncio.Event) -> Any:
    """Return a script that answers once the gate is open."""

    async def script(wire: Any, request: Any) -> None:
        await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    return script


async def test_a_run_over_rows_and_over_a_file(engine: Any, weft: Any, until: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        some = texts(40)
        expected = [{"row": n, "said": f"re: text {n}", "error": None} for n in range(len(some))]
        inline = await begin(client, rows=some)
        file = await client.post(
            "/v1/files",
            files={
                "file": ("rows.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in some)),
                "purpose": (None, "workflow"),
            },
            headers=headers_of("sk-a"),
        )
        stored = await begin(client, input_file_id=file.json()["id"])
        await client.delete(f"/v1/files/{file.json()['id']}", headers=headers_of("sk-a"))
        for begun in (inline, stored):
            one = await ended(client, begun["id"])
            assert (one["status"], one["error"]) == ("completed", None)
            assert one["row_counts"] == {"total": 40, "completed": 40, "failed": 0}
            assert one["usage"] == {"total_tokens": 280}
            assert await output(client, one["id"]) == expected
        listed = await client.get("/v1/runs", headers=headers_of("sk-a"))
        assert [one["id"] for one in listed.json()["data"]] == [stored["id"], inline["id"]]
        assert len(stub.requests) == 80
        folder = gateway.parts.batches.store.folder / "runs"
        await until(lambda: not list(folder.iterdir()))


async def test_json_and_yaml_are_equal(engine: Any, weft: Any) -> None:
    spec = {
        "weft": 1,
        "inputs": {"text": "str"},
        "ops": {"said": {"llm": {"user": "\U0001f600\t{{ text }}"}}},
        "outputs": {"said": "said"},
    }
    async with engine(script=chat) as stub, weft(stub) as gateway:
        for text in (spec, json.dumps(spec, ensure_ascii=False)):
            _, found = await run(gateway.client, text, rows=texts(1))
            assert found == [{"row": 0, "said": "re: \U0001f600\ttext 0", "error": None}]


async def test_events_follow_a_run(engine: Any, weft: Any) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as gateway:
        client, found = gateway.client, []
        begun = await begin(client, rows=texts(5))
        path, event = f"/v1/runs/{begun['id']}/events", ""
        async with (
            asyncio.timeout(DEADLINE_S),
            client.stream("GET", path, headers=headers_of("sk-a")) as stream,
        ):
            assert stream.headers["content-type"].startswith("text/event-stream")
            async for text in stream.aiter_lines():
                name, _, value = text.partition(": ")
                if name == "event":
                    event = value
                elif name == "data":
                    found.append((event, json.loads(value)))
                    gate.set()
        assert {one for one, _ in found[:-1]} == {"progress"}
        assert found[-1][0] == "end"
        assert found[-1][1]["status"] == "completed"
        assert found[-1][1]["row_counts"]["completed"] == 5


async def test_cancel_keeps_the_rows_that_have_ended(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"] not in ("text 0", "text 1", "text 2"):
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub) as gateway:
        client = gateway.client
        begun = await begin(client, rows=texts(10))
        await completed(client, begun["id"], 3)
        (group,) = gateway.parts.runs._tasks
        process = group.process._process
        path = f"/v1/runs/{begun['id']}"
        early = await client.get(f"{path}/output", headers=headers_of("sk-a"))
        assert (early.status_code, early.json()["error"]["code"]) == (404, "no_output")
        shown = await client.post(f"{path}/cancel", headers=headers_of("sk-a"))
        assert shown.json()["status"] == "cancelling"
        one = await ended(client, begun["id"])
        assert one["status"] == "cancelled"
        assert [row["row"] for row in await output(client, begun["id"])] == [0, 1, 2]
        await until(lambda: not gateway.parts.runs._tasks)
        assert process.returncode is not None
        await until(lambda: gateway.in_flight() == 0)
        gate.set()


async def test_failed_rows_and_budgets(engine: Any, weft: Any) -> None:
    async def some(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"].endswith(("1", "2")):
            error = {"error": {"message": "The prompt is too long."}}
            await wire.plain(error, status="400 Bad Request")
        else:
            await chat(wire, request)

    async with engine(script=some) as stub, weft(stub) as gateway:
        client = gateway.client
        one, found = await run(client, rows=texts(4))
        assert one["row_counts"] == {"total": 4, "completed": 2, "failed": 2}
        assert found[1]["error"] == {
            "op": "said",
            "code": "http_400",
            "message": "The prompt is too long.",
            "attempts": 1,
        }
        one, _ = await run(client, rows=texts(4), max_errors=0)
        assert (one["status"], one["error"]["code"]) == ("stopped", "error_budget")
        one, found = await run(client, rows=texts(4), budget_tokens=1)
        assert (one["status"], one["error"]["code"]) == ("stopped", "token_budget")
        assert found == []


async def test_wrong_input(engine: Any, weft: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs_module, "ROWS", 3)
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        for body, code, words in (
            (b'{"rows": [], "rows": [{"text": "a"}]}', "duplicate_member", "'rows' twice"),
            ({"rows": texts(1)}, "invalid_request", "workflow"),
            ({"workflow": SAY, "rows": []}, "invalid_request", "rows"),
            ({"workflow": SAY}, "invalid_request", "Needs either"),
            ({"workflow": SAY, "rows": texts(1), "input_file_id": "x"}, "invalid_request", "both"),
            ({"workflow": SAY, "input_file_id": "../../x"}, "invalid_input_file", "No file"),
            ({"workflow": SAY, "rows": texts(1), "max_error": 1}, "invalid_request", "max_error"),
            ({"workflow": SAY, "rows": texts(1), "batch_ms": 60_001}, "invalid_request", "60000"),
            ({"workflow": SAY, "rows": texts(1), "batch_ms": True}, "invalid_request", "batch_ms"),
            ({"workflow": "x" * 300_000, "rows": texts(1)}, "invalid_request", "workflow"),
        ):
            raw = body if isinstance(body, bytes) else json.dumps(body)
            answer = await client.post("/v1/runs", content=raw, headers=headers_of("sk-a"))
            assert answer.status_code == 400, body
            error = answer.json()["error"]
            assert error["code"] == code, error
            assert words in error["message"]
            assert "Value error" not in error["message"]
        wrong = {
            SAY.replace("{{ text }}", "{{ txt }}"): (texts(1), "did you mean text?"),
            SAY.replace("name: say", "name: say\nmodel: tinny"): (
                texts(1),
                "workflow.yaml:4: model: http://127.0.0.1",
            ),
            SAY: ([{"text": "a"}, {"txt": "a"}], "rows:2: input 'text' is missing"),
            f"{SAY}\n": ([{"text": 1}], "must be of type str"),
            f"{SAY}\n\n": (texts(4), "the input has 4 rows; a run has at most 3"),
        }
        begun = [(await begin(client, text, rows=some), words)
                 for text, (some, words) in wrong.items()]  # fmt: skip
        for one, words in begun:
            found = await ended(client, one["id"])
            assert found["status"] == "failed"
            assert words in found["error"]["message"], found
            assert str(gateway.parts.batches.store.folder) not in found["error"]["message"]
        assert stub.requests == []
        old = await client.post("/v1/workflows", content=SAY, headers=headers_of("sk-a"))
        assert (old.status_code, old.json()["error"]["code"]) == (404, "workflows_not_stored")


async def test_input_files(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        client = gateway.client

        async def uploaded(name: str, content: bytes) -> str:
            answer = await client.post(
                "/v1/files",
                files={"file": (name, content)},
                data={"purpose": "workflow"},
                headers=headers_of("sk-a"),
            )
            return str(answer.json()["id"])

        one, _ = await run(client, input_file_id=await uploaded("a.jsonl", b""))
        assert (one["status"], one["row_counts"]["total"]) == ("completed", 0)
        one, _ = await run(client, input_file_id=await uploaded("b.jsonl", b"[]"))
        assert one["error"]["message"] == "b.jsonl:1: a row must be a JSON object"
        # Parquet is for `weft run` only.
        one, _ = await run(client, input_file_id=await uploaded("c.parquet", b"PAR1"))
        assert one["error"]["message"].startswith("c.parquet:1: not valid JSON")


async def test_runs_that_arrive_together_share_a_process_and_equal_calls(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as gateway:
        client, tasks = gateway.client, gateway.parts.runs._tasks
        together: Any = {"batch_ms": WINDOW_MS}
        one = await begin(client, rows=rows("a", "b"), **together)
        two = await begin(client, rows=rows("c", "a"), **together)
        wrong = await begin(client, rows=[{"text": 1}], **together)
        foreign = await begin(client, SAY, "sk-b", rows=rows("d"), **together)
        assert two["batch_ms"] == WINDOW_MS
        await until(lambda: len(stub.requests) == 4)
        assert len(tasks) == 2
        assert said(stub) == ["a", "b", "c", "d"]
        error = (await ended(client, wrong["id"]))["error"]
        assert error["message"].startswith("rows:1: input 'text' must be of type str")
        gate.set()
        first, second = [await ended(client, run["id"]) for run in (one, two)]
        assert [first["status"], second["status"]] == ["completed"] * 2
        assert [row["said"] for row in await output(client, one["id"])] == ["re: a", "re: b"]
        assert [(row["row"], row["said"]) for row in await output(client, two["id"])] == [
            (0, "re: c"), (1, "re: a"),
        ]  # fmt: skip
        # The run that began an equal call has its tokens.
        assert [one["usage"]["total_tokens"] for one in (first, second)] == [14, 7]
        await ended(client, foreign["id"], "sk-b")
        assert len(stub.requests) == 4


async def test_a_cancelled_run_leaves_the_others_of_its_process(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as gateway:
        client, together = gateway.client, {"batch_ms": WINDOW_MS}
        gone = await begin(client, rows=rows("a", "b"), **together)
        kept = await begin(client, rows=rows("a", "c"), **together)
        early = await begin(client, rows=rows("d"), **together)
        path = f"/v1/runs/{early['id']}/cancel"
        shown = await client.post(path, headers=headers_of("sk-a"))
        assert shown.json()["status"] == "cancelled"
        await until(lambda: len(stub.requests) == 3)
        path = f"/v1/runs/{gone['id']}/cancel"
        shown = await client.post(path, headers=headers_of("sk-a"))
        assert shown.json()["status"] == "cancelling"
        gate.set()
        assert (await ended(client, kept["id"]))["status"] == "completed"
        assert [row["said"] for row in await output(client, kept["id"])] == ["re: a", "re: c"]
        assert (await ended(client, gone["id"]))["status"] == "cancelled"
        assert [row["said"] for row in await output(client, gone["id"])] == ["re: a", "re: b"]
        assert said(stub) == ["a", "b", "c"]
        assert (await ended(client, early["id"]))["output_file_id"] is None


async def test_cancel_of_all_joined_runs_aborts_their_calls(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as gateway:
        client = gateway.client
        runs = [await begin(client, rows=rows(*some), batch_ms=WINDOW_MS) for some in ("ab", "c")]
        await until(lambda: len(stub.requests) == 3)
        for one in runs:
            await client.post(f"/v1/runs/{one['id']}/cancel", headers=headers_of("sk-a"))
        for one in runs:
            assert (await ended(client, one["id"]))["status"] == "cancelled"
        await until(lambda: gateway.in_flight() == 0)
        gate.set()


async def test_a_lost_process_ends_its_runs_with_their_rows(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"] != "a":
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub) as gateway:
        client, tasks = gateway.client, gateway.parts.runs._tasks
        runs = [await begin(client, rows=rows(*some), batch_ms=WINDOW_MS) for some in ("ab", "c")]
        await completed(client, runs[0]["id"], 1)
        (group,) = tasks
        group.process.kill()
        gate.set()
        for one, some in zip(runs, ("a", ""), strict=True):
            found = await ended(client, one["id"])
            assert (found["status"], found["error"]["code"]) == ("failed", "process_failed")
            assert [row["said"] for row in await output(client, one["id"])] == [
                f"re: {text}" for text in some
            ]


async def test_other_gateways_of_a_folder_only_read(engine: Any, weft: Any) -> None:
    gate = asyncio.Event()
    async with engine(script=held(gate)) as stub, weft(stub) as owner:
        one = await begin(owner.client, rows=rows("a"))
        async with weft(stub) as other:
            path, mine = f"/v1/runs/{one['id']}", headers_of("sk-a")
            for answer in (
                await create(other.client, rows=rows("a")),
                await other.client.post(f"{path}/cancel", headers=mine),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (
                    503, "runs_elsewhere",
                )  # fmt: skip
            gate.set()
            assert (await ended(other.client, one["id"]))["status"] == "completed"
            assert [row["said"] for row in await output(other.client, one["id"])] == ["re: a"]
            listed = await other.client.get("/v1/runs", headers=mine)
            assert [each["id"] for each in listed.json()["data"]] == [one["id"]]
