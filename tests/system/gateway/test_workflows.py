"""Workflows over HTTP: their life with a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from support.workflow_runs import (
    SAY,
    begin,
    chat,
    completed,
    create,
    created,
    ended,
    headers_of,
    output,
    refused,
    run,
    texts,
)

TEMPLATE = SAY.replace('llm: {user: "{{ text }}", max_tokens: 4}', 'format: "{{ text }}"')
pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_a_workflow_is_explained(engine: Any, weft: Any) -> None:
    text = """
weft: 1
inputs: {docs: list}
ops:
  facts: {for_each: docs, llm: {user: "Facts: {{ item }}"}}
  same: {for_each: docs, llm: {user: "Facts: {{ item }}"}}
  unused: {format: "{{ docs }}"}
  report: {llm: {user: "{{ facts }}{{ same }}"}}
outputs: {report: report}
"""
    async with engine() as stub, weft(stub) as gateway:
        answer = await create(gateway.client, text)
        plan = answer.json()
        assert [(one["name"], one["kind"], one["for_each"]) for one in plan["operators"]] == [
            ("facts", "llm", "docs"),
            ("report", "llm", None),
        ]
        assert {(one["kind"], one["operator"], one["into"]) for one in plan["rewrites"]} == {
            ("merge", "same", "facts"),
            ("prune", "unused", None),
        }
        assert plan["inputs"] == {"docs": "list"}
        path = f"/v1/workflows/{plan['id']}"
        found = await gateway.client.get(path, headers=headers_of("sk-a"))
        assert found.json() == plan
        listed = await gateway.client.get("/v1/workflows", headers=headers_of("sk-a"))
        assert [one["id"] for one in listed.json()["data"]] == [plan["id"]]
        assert (await gateway.client.delete(path, headers=headers_of("sk-a"))).json()["deleted"]
        gone = await gateway.client.get(path, headers=headers_of("sk-a"))
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "workflow_not_found")


async def test_json_and_yaml_are_equal(engine: Any, weft: Any) -> None:
    spec = {
        "weft": 1,
        "inputs": {"text": "str"},
        "ops": {"said": {"llm": {"user": "\U0001f600 {{ text }}"}}},
        "outputs": {"said": "said"},
    }
    async with engine(script=chat) as stub, weft(stub) as gateway:
        for raw in (json.dumps(spec, indent="\t"), json.dumps(spec, ensure_ascii=False)):
            answer = await gateway.client.post(
                "/v1/workflows",
                content=raw.encode(),
                headers=headers_of("sk-a") | {"content-type": "application/json"},
            )
            assert answer.status_code == 200, answer.text
            one = await begin(gateway.client, answer.json()["id"], rows=texts(1))
            await ended(gateway.client, one["id"])
            assert await output(gateway.client, one["id"]) == [
                {"row": 0, "said": "re: \U0001f600 text 0", "error": None}
            ]
        wrong = await gateway.client.post(
            "/v1/workflows", content=b"x", headers={"content-type": "image/png"}
        )
        assert wrong.status_code == 415


async def test_a_run_over_rows_and_over_a_file(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        workflow = await created(client)
        rows = texts(30)
        expected = [{"row": n, "said": f"re: text {n}", "error": None} for n in range(len(rows))]
        inline = await begin(client, workflow, rows=rows)
        file = await client.post(
            "/v1/files",
            files={
                "file": ("rows.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows)),
                "purpose": (None, "workflow"),
            },
            headers=headers_of("sk-a"),
        )
        stored = await begin(client, workflow, input_file_id=file.json()["id"])
        await client.delete(f"/v1/files/{file.json()['id']}", headers=headers_of("sk-a"))
        for begun in (inline, stored):
            one = await ended(client, begun["id"])
            assert one["status"] == "completed", one
            assert one["row_counts"] == {"total": 30, "completed": 30, "failed": 0}
            assert one["usage"] == {"total_tokens": 210}
            assert one["operators"]["said"]["calls"] == 30
            assert one["model"] == "tiny"
            assert await output(client, one["id"]) == expected
        # The calls are those of a program of the tenant, with the lowest priority.
        assert stub.requests[0].json["vllm_xargs"]["weft_service"] >= 30
        listed = await client.get("/v1/runs", headers=headers_of("sk-a"))
        assert [one["id"] for one in listed.json()["data"]] == [stored["id"], inline["id"]]
        assert not list((gateway.parts.batches.folder / "runs").iterdir())


async def test_events_follow_a_run_and_resume(engine: Any, weft: Any) -> None:
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"] != "text 0":
            await gate.wait()
        await chat(wire, request)

    async def follow(client: Any, run_id: str, last: str = "", most: int = 100) -> Any:
        """Return the events by name, up to `most` rows."""
        found: list[tuple[str, str, Any]] = []
        headers = headers_of("sk-a") | ({"last-event-id": last} if last else {})
        async with client.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            event, number = "", ""
            async for text in stream.aiter_lines():
                name, _, value = text.partition(": ")
                if name == "event":
                    event = value
                elif name == "id":
                    number = value
                elif name == "data":
                    found.append((event, number if event == "row" else "", json.loads(value)))
                    if sum(one[0] == "row" for one in found) == most:
                        break
        return found

    async with engine(script=hold) as stub, weft(stub) as gateway:
        client = gateway.client
        begun = await begin(client, await created(client), rows=texts(5))
        async with asyncio.timeout(60):
            first = await follow(client, begun["id"], most=1)
            gate.set()
            rows = [one for one in first if one[0] == "row"]
            assert [one[2] for one in rows] == [{"row": 0, "failed": False}]
            rest = await follow(client, begun["id"], last=rows[0][1])
        assert sorted(one[2]["row"] for one in rest if one[0] == "row") == [1, 2, 3, 4]
        assert rest[-1][0] == "end"
        assert rest[-1][2]["status"] == "completed"
        assert rest[-1][2]["row_counts"]["completed"] == 5
        again = await follow(client, begun["id"])
        assert len(again) == 6
        assert again[-1][0] == "end"


async def test_cancel_keeps_the_rows_that_have_ended(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        if len(stub.requests) > 3:
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub, batch_calls=1) as gateway:
        client = gateway.client
        begun = await begin(client, await created(client), rows=texts(10))
        await completed(client, begun["id"], 3)
        path = f"/v1/runs/{begun['id']}"
        early = await client.get(f"{path}/output", headers=headers_of("sk-a"))
        assert (early.status_code, early.json()["error"]["code"]) == (404, "no_output")
        shown = await client.post(f"{path}/cancel", headers=headers_of("sk-a"))
        assert shown.json()["status"] == "cancelling"
        one = await ended(client, begun["id"])
        gate.set()
        assert one["status"] == "cancelled"
        assert [row["row"] for row in await output(client, begun["id"])] == [0, 1, 2]
        assert len(stub.requests) == 4


async def test_failed_rows_and_budgets(engine: Any, weft: Any) -> None:
    async def some(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"].endswith(("1", "2")):
            error = {"error": {"message": "The prompt is too long."}}
            await wire.plain(error, status="400 Bad Request")
        else:
            await chat(wire, request)

    async with engine(script=some) as stub, weft(stub, batch_calls=1) as gateway:
        client = gateway.client
        one, rows = await run(client, SAY, rows=texts(4))
        assert one["row_counts"] == {"total": 4, "completed": 2, "failed": 2}
        assert rows[1]["error"] == {
            "op": "said",
            "code": "http_400",
            "message": "The prompt is too long.",
            "attempts": 1,
        }
        one, rows = await run(client, SAY, rows=texts(4), max_errors=0)
        assert (one["status"], one["error"]["code"]) == ("stopped", "error_budget")
        assert [row["row"] for row in rows] == [0, 1]
        one, rows = await run(client, SAY, rows=texts(4), budget_tokens=1)
        assert (one["status"], one["error"]["code"]) == ("stopped", "token_budget")
        assert rows == []


async def test_wrong_input(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub, workflow_rows=3) as gateway:
        client = gateway.client
        message = await refused(client, SAY.replace("{{ text }}", "{{ txt }}"))
        assert message.startswith("workflow.yaml:6:")
        assert "did you mean text?" in message
        workflow = await created(client)
        path = f"/v1/workflows/{workflow}/runs"
        for body, code, words in (
            ({"rows": [{"text": "a"}, {"txt": "a"}]}, "invalid_rows", "rows.1: input 'text' is"),
            ({"rows": [{"text": 1}]}, "invalid_rows", "must be of type str"),
            (b'{"rows": [{"text": "a",\n"text": "b"}]}', "invalid_rows", "'text' appears"),
            (b'{"rows": [], "rows": [{"text": "a"}]}', "duplicate_member", "'rows' twice"),
            ({"rows": []}, "invalid_request", "rows"),
            ({}, "invalid_request", "Needs either"),
            ({"rows": texts(1), "input_file_id": "x"}, "invalid_request", "Needs either"),
            ({"rows": texts(1), "input_file_id": "x"}, "invalid_request", "and not both"),
            ({"input_file_id": "../../x"}, "invalid_input_file", "No file"),
            ({"rows": texts(1), "max_error": 1}, "invalid_request", "max_error"),
            ({"rows": texts(1), "max_errors": True}, "invalid_request", "max_errors"),
            ({"rows": texts(1), "budget_tokens": True}, "invalid_request", "budget_tokens"),
        ):
            raw = body if isinstance(body, bytes) else json.dumps(body)
            answer = await client.post(path, content=raw, headers=headers_of("sk-a"))
            assert answer.status_code == 400, body
            error = answer.json()["error"]
            assert error["code"] == code
            assert words in error["message"]
            assert "Value error" not in error["message"]
        other = await created(client, SAY.replace("name: say", "name: say\nmodel: tinny"))
        answer = await client.post(
            f"/v1/workflows/{other}/runs", json={"rows": texts(1)}, headers=headers_of("sk-a")
        )
        assert answer.json()["error"]["message"] == (
            "workflow.yaml:4: model: no replica serves 'tinny'; did you mean tiny?"
        )
        one, _ = await run(client, SAY, rows=texts(4))
        assert one["status"] == "failed"
        assert one["error"]["message"] == "the input has 4 rows; a run has at most 3"
        assert stub.requests == []
        assert not list((gateway.parts.batches.folder / "runs").iterdir())


async def test_a_workflow_without_a_model_needs_a_gateway_with_one(engine: Any, weft: Any) -> None:
    async with engine(script=chat, models=("a", "b")) as stub, weft(stub) as gateway:
        workflow = await created(gateway.client)
        answer = await gateway.client.post(
            f"/v1/workflows/{workflow}/runs", json={"rows": texts(1)}, headers=headers_of("sk-a")
        )
        assert answer.json()["error"]["message"] == (
            "workflow.yaml:6: said: no model is named, and the replicas serve: a, b"
        )


async def test_input_files(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        client = gateway.client
        workflow = await created(client, TEMPLATE)

        async def uploaded(name: str, content: bytes) -> str:
            answer = await client.post(
                "/v1/files",
                files={"file": (name, content)},
                data={"purpose": "workflow"},
                headers=headers_of("sk-a"),
            )
            return str(answer.json()["id"])

        empty = await begin(client, workflow, input_file_id=await uploaded("a.jsonl", b""))
        assert empty["row_counts"]["total"] is None
        one = await ended(client, empty["id"])
        assert (one["status"], one["row_counts"]["total"]) == ("completed", 0)
        wrong = await begin(client, workflow, input_file_id=await uploaded("b.jsonl", b"[]"))
        one = await ended(client, wrong["id"])
        assert one["error"]["message"] == "b.jsonl:1: a row must be a JSON object"
        answer = await client.post(
            f"/v1/workflows/{workflow}/runs",
            json={"input_file_id": await uploaded("c.parquet", b"PAR1" + bytes(100))},
            headers=headers_of("sk-a"),
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "invalid_input_file")
        assert error["message"].startswith("'c.parquet' is a Parquet file. ")
