"""Runs over HTTP: steps of a client, and an engine's answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from support.waiting import DEADLINE_S

ENDED = ("completed", "cancelled", "stopped", "failed")
SAY = """
weft: 1
name: say
inputs: {text: str}
ops:
  said: {llm: {user: "{{ text }}", max_tokens: 4}}
outputs: {said: said}
"""


async def chat(wire: Any, request: Any) -> None:
    """Answer with the last message."""
    said = request.json["messages"][-1]["content"]
    message = {"role": "assistant", "content": f"re: {said}"}
    await wire.plain(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": request.json["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        }
    )


def headers_of(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def create(
    client: httpx.AsyncClient, text: Any = SAY, key: str = "sk-a", **body: Any
) -> httpx.Response:
    return await client.post("/v1/runs", json={"workflow": text} | body, headers=headers_of(key))


async def begin(
    client: httpx.AsyncClient, text: Any = SAY, key: str = "sk-a", **body: Any
) -> dict[str, Any]:
    """Begin a run."""
    answer = await create(client, text, key, **body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def ended(client: httpx.AsyncClient, run_id: str, key: str = "sk-a") -> dict[str, Any]:
    """Wait for the end of a run."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await client.get(f"/v1/runs/{run_id}", headers=headers_of(key))
            run: dict[str, Any] = answer.json()
            if run["status"] in ENDED:
                return run
            await asyncio.sleep(0.05)


async def completed(client: httpx.AsyncClient, run_id: str, rows: int) -> None:
    """Wait until a number of rows has ended well."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await client.get(f"/v1/runs/{run_id}", headers=headers_of("sk-a"))
            if answer.json()["row_counts"]["completed"] >= rows:
                return
            await asyncio.sleep(0.05)


async def output(client: httpx.AsyncClient, run_id: str, key: str = "sk-a") -> list[Any]:
    """Return the rows of an output."""
    answer = await client.get(f"/v1/runs/{run_id}/output", headers=headers_of(key))
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def run(
    client: httpx.AsyncClient, text: Any = SAY, **body: Any
) -> tuple[dict[str, Any], list[Any]]:
    """Run a workflow to its end. Returns the run and its output."""
    one = await ended(client, (await begin(client, text, **body))["id"])
    return one, await output(client, one["id"]) if one["output_file_id"] else []


async def refused(client: httpx.AsyncClient, text: str) -> str:
    """Return the message of a workflow that must be refused."""
    one, _ = await run(client, text, rows=texts(1))
    assert (one["status"], one["error"]["code"]) == ("failed", "invalid_workflow"), one
    return str(one["error"]["message"])


def texts(count: int) -> list[dict[str, str]]:
    return [{"text": f"text {number}"} for number in range(count)]
