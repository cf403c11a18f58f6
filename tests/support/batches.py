"""Requests of batches, an engine's answers to them, and steps of OpenAI's client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
from support.waiting import DEADLINE_S
from weft_bench.stack.gateway import command

CHAT = "/v1/chat/completions"
# Calls of batches in flight at an engine of a test.
CALLS = 4


def line(number: int, content: str = "", **body: Any) -> dict[str, Any]:
    """Return one request of a batch."""
    messages = [{"role": "user", "content": content or f"question {number}"}]
    body = {"model": "tiny", "messages": messages} | body
    return {"custom_id": f"row-{number}", "method": "POST", "url": CHAT, "body": body}


def lines(*requests: Any) -> bytes:
    return b"".join(json.dumps(request).encode() + b"\n" for request in requests)


async def chat(wire: Any, request: Any) -> None:
    """Answer with the last message. An answer has used 5 tokens."""
    body = request.json
    said = body["messages"][-1]["content"]
    await wire.plain(
        {
            "id": f"chatcmpl-{said}",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": f"re: {said}"},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }
    )


def client_of(gateway: Any, key: str = "sk-a") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


async def upload(client: openai.AsyncOpenAI, content: bytes, purpose: Any = "batch") -> str:
    file = await client.files.create(file=("in.jsonl", content), purpose=purpose)
    return file.id


async def run(client: openai.AsyncOpenAI, content: bytes, **options: Any) -> Any:
    """Run a batch to its end."""
    options = {"endpoint": CHAT, "completion_window": "24h"} | options
    batch = await client.batches.create(input_file_id=await upload(client, content), **options)
    return await ended(client, batch.id)


async def ended(client: openai.AsyncOpenAI, batch_id: str) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            batch = await client.batches.retrieve(batch_id)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
            await asyncio.sleep(0.02)


async def content(client: openai.AsyncOpenAI, file_id: str | None) -> dict[str, Any]:
    """Return the lines of a file by custom id, and check that each is there once."""
    if file_id is None:
        return {}
    found = [json.loads(text) for text in (await client.files.content(file_id)).text.splitlines()]
    by_id = {one["custom_id"]: one for one in found}
    assert len(by_id) == len(found)
    return by_id


@contextlib.asynccontextmanager
async def served(
    port: int,
    replica: str,
    folder: Path,
    constants: dict[str, Any] | None = None,
    **environment: str,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a gateway process until the context ends, which kills it."""
    process = await asyncio.create_subprocess_exec(
        *command({"batch_calls": CALLS} | (constants or {}), port=port),
        env={
            **os.environ,
            "WEFT_REPLICAS": replica,
            "WEFT_DATA_DIR": str(folder),
            **environment,
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(DEADLINE_S), httpx.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
