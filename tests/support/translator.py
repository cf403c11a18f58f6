"""A proxy that translates the Messages API to Chat Completions, as gateways do in front of engines,
and an engine that counts what a prefix cache has of its prompts.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
from support.answers import answer
from support.scripted_engine import Received, Wire

_STEP = 256


class Translator:
    """A script of `support.scripted_engine` that calls `url`."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __call__(self, wire: Wire, request: Received) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            body = translated(request.json)
            got = await client.post(f"{self._url}/v1/chat/completions", json=body)
        text = got.json()["choices"][0]["message"]["content"]
        await wire.stream(*answer(request.target, text, 1_000))


def translated(body: dict[str, Any]) -> dict[str, Any]:
    """Return a call of the Messages API in Chat Completions. Blocks stay blocks."""
    asked: list[dict[str, Any]] = [{"role": "system", "content": body["system"]}]
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, list):
            content = "\n".join(part["text"] for part in content if part["type"] == "text")
        asked.append({"role": message["role"], "content": content})
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": tool.get("input_schema", {}),
            },
        }
        for tool in body["tools"]
    ]
    return {
        "model": body["model"], "messages": asked, "max_tokens": body["max_tokens"],
        "tools": tools,
    }  # fmt: skip


class CachingEngine:
    """A script that answers calls of Chat Completions. rates: of each call with tools, the part of
    its prompt that a prefix cache has. It renders all that it gets: system prompt, tools, messages.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.rates: list[float] = []
        self._cached: set[str] = set()

    async def __call__(self, wire: Wire, request: Received) -> None:
        body = request.json
        if body.get("tools"):
            self.bodies.append(body)
            self.rates.append(self._rate(body))
        if body.get("stream"):
            await wire.stream(*answer(request.target, "Yes.", 1_000))
            return
        usage = {"prompt_tokens": 1_000, "completion_tokens": 1}
        choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}}
        await wire.plain({"object": "chat.completion", "choices": [choice], "usage": usage})

    def _rate(self, body: dict[str, Any]) -> float:
        first, *others = body["messages"]
        prompt = "".join(map(json.dumps, (first, body["tools"], *others)))
        steps = [prompt[:end] for end in range(_STEP, len(prompt), _STEP)]
        hits = sum(step in self._cached for step in steps)
        self._cached.update(steps)
        return hits / len(steps)
