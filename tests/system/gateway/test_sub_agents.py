"""Sub-agents of real coding agents are threads with a parent.

The demo model cannot choose tools, so the engine's answers are scripted here. The agent and the
gateway are real.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support import agents

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEY = {"authorization": f"Bearer {agents.KEY}"}


def message(*blocks: dict[str, Any], stop: str) -> list[bytes]:
    """Return the events of a streamed answer of Anthropic's Messages API."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    tool_use = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "weft-demo", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": tool_use}]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", **block}
            delta["type"] = "text_delta"
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


async def test_a_claude_code_sub_agent_is_a_thread_of_the_main_loop(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    agents.install(agents.CLAUDE_CODE)
    tool_use = {
        "type": "tool_use", "id": "toolu_01aaaaaaaaaaaaaaaaaaaaaa", "name": "Agent",
        "input": {
            "description": "Count files", "prompt": "Count the files.",
            "subagent_type": "general-purpose", "run_in_background": False,
        },
    }  # fmt: skip

    async def script(wire: Any, request: Any) -> None:
        conversation = json.dumps(request.json["messages"])
        if (
            "tools" in request.json
            and "Delegate this" in conversation
            and tool_use["id"] not in conversation
        ):
            answer = message(tool_use, stop="tool_use")
        else:
            answer = message({"type": "text", "text": "There is one."}, stop="end_turn")
        await wire.stream(*answer)

    project = tmp_path / "project"
    project.mkdir()
    async with (
        engine(script=script, models=("weft-demo",)) as stub,
        weft(stub) as gateway,
    ):
        result = await asyncio.to_thread(
            agents.claude_code, gateway.url, tmp_path / "home", project, "Delegate this.",
            "--allowedTools", "Agent",
        )  # fmt: skip
        assert result.status == 0, result.output
        (session,) = (await gateway.client.get("/v1/sessions", headers=KEY)).json()["data"]
        path = f"/v1/sessions/{session['id']}/story"
        trace = (await gateway.client.get(path, headers=KEY)).json()
        parents = {thread["thread"]: thread["parent"] for thread in trace["threads"]}
        assert parents.pop("main") is None
        assert list(parents.values()) == ["main"], "the main loop has not exactly one sub-agent"
