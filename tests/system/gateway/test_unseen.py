"""Placement and lineage leave out of prompts what engines leave out.

Claude Code begins its system prompt with a line whose digest changes with each call. vLLM drops it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

PROMPT = "You are an agent that works on a code base. Use the tools and be brief. " * 400
TOOLS = [{"name": "read", "description": "Read a file.", "input_schema": {"type": "object"}}]


def billed(number: int) -> str:
    return f"x-anthropic-billing-header: cc_version=2.1.332; cc_entrypoint=cli; cch={number:05x};"


def messages(number: int, turns: list[str]) -> tuple[str, dict[str, Any]]:
    """Return a call of Claude Code: the last part is marked for the cache."""
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": billed(number)}, {"type": "text", "text": PROMPT, **mark}]
    asked: list[dict[str, Any]] = []
    for turn in turns:
        asked.append({"role": "user", "content": [{"type": "text", "text": turn}]})
        asked.append({"role": "assistant", "content": [{"type": "text", "text": "Yes."}]})
    asked.pop()
    asked[-1]["content"][-1].update(mark)
    body = {"system": system, "messages": asked, "tools": TOOLS, "max_tokens": 9}
    return "/v1/messages", {"model": "tiny", **body}


def chat(number: int, turns: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the same call through a proxy that translates it."""
    asked = [{"role": "system", "content": f"{billed(number)}\n{PROMPT}"}]
    for turn in turns:
        asked += [{"role": "user", "content": turn}, {"role": "assistant", "content": "Yes."}]
    return "/v1/chat/completions", {"model": "tiny", "messages": asked[:-1]}


def responses(number: int, turns: list[str]) -> tuple[str, dict[str, Any]]:
    first, *rest = chat(number, turns)[1]["messages"]
    body = {"instructions": first["content"], "input": rest, "store": False}
    return "/v1/responses", {"model": "tiny", **body}


async def answer(wire: Any, request: Any) -> None:
    text = "Yes."
    if request.target == "/v1/messages":
        await wire.plain({"role": "assistant", "content": [{"type": "text", "text": text}]})
    elif request.target == "/v1/responses":
        part = {"type": "output_text", "text": text}
        await wire.plain({"output": [{"type": "message", "role": "assistant", "content": [part]}]})
    else:
        await wire.plain({"choices": [{"message": {"role": "assistant", "content": text}}]})


SHAPES = (messages, chat, responses)
Shape = Callable[[int, list[str]], tuple[str, dict[str, Any]]]


@pytest.mark.parametrize("shape", SHAPES)
async def test_short_answers_below_a_changing_line_are_one_program(
    shape: Shape, engine: Any, weft: Any
) -> None:
    found = set()
    async with engine(script=answer) as stub, weft(stub) as gateway:
        for number in range(6):
            path, body = shape(number, [f"Step {turn}" for turn in range(number + 1)])
            got = await gateway.client.post(path, json=body)
            assert got.status_code == 200
            found.add(got.headers["x-weft-program"])
            # The engine gets the line.
            assert billed(number) in json.dumps(stub.requests[-1].json)
    assert len(found) == 1


@pytest.mark.parametrize("shape", SHAPES)
async def test_new_sessions_below_a_changing_line_share_their_prefix(
    shape: Shape, engine: Any, weft: Any
) -> None:
    reasons = []
    async with (
        engine(script=answer) as one,
        engine(script=answer) as two,
        weft(one, two, balancer="locality") as gateway,
    ):
        for number in range(4):
            path, body = shape(number, [f"Question {number}"])
            headers = {"x-claude-code-session-id": f"s{number}", "x-request-id": f"r{number}"}
            got = await gateway.client.post(path, json=body, headers=headers)
            assert got.status_code == 200
            receipt = (await gateway.client.get(f"/v1/receipts/r{number}")).json()
            reasons.append(receipt["place"]["reason"])
    assert reasons == ["new home", *["shared prefix"] * 3]
