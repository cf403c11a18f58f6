"""Sub-agents of real coding agents are threads that have a parent.

Which tool a model calls cannot be left to the demo model: here the engine's answers are written
down, and the agent, the gateway and all between them are real.
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
    """A streamed answer of Anthropic's Messages."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    begun = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "weft-demo", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
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


async def test_a_sub_agent_of_claude_code_has_the_main_loop_for_a_parent(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    agents.install(agents.CLAUDE_CODE)
    begun = {
        "type": "tool_use", "id": "toolu_01aaaaaaaaaaaaaaaaaaaaaa", "name": "Agent",
        "input": {
            "description": "Count files", "prompt": "Count the files.",
            "subagent_type": "general-purpose", "run_in_background": False,
        },
    }  # fmt: skip

    async def script(wire: Any, request: Any) -> None:
        said = json.dumps(request.json["messages"])
        if "tools" in request.json and "Delegate this" in said and begun["id"] not in said:
            answer = message(begun, stop="tool_use")
        else:
            answer = message({"type": "text", "text": "There is one."}, stop="end_turn")
        await wire.stream(*answer)

    project = tmp_path / "project"
    project.mkdir()
    async with (
        engine(script=script, models=("weft-demo",)) as stub,
        weft(stub) as gateway,
    ):
        ran = await asyncio.to_thread(
            agents.claude_code, gateway.url, tmp_path / "home", project, "Delegate this.",
            "--allowedTools", "Agent",
        )  # fmt: skip
        assert ran.status == 0, ran.output
        (session,) = (await gateway.client.get("/v1/sessions", headers=KEY)).json()["data"]
        path = f"/v1/sessions/{session['id']}/story"
        story = (await gateway.client.get(path, headers=KEY)).json()
        parents = {thread["thread"]: thread["parent"] for thread in story["threads"]}
        assert parents.pop("main") is None
        assert list(parents.values()) == ["main"], "one sub-agent, begun by the main loop"
