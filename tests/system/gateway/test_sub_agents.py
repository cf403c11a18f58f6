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
from support.answers import messages

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEY = {"authorization": f"Bearer {agents.KEY}"}


async def test_a_claude_code_sub_agent_is_a_thread_of_the_main_loop(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
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
            answer = messages(tool_use, stop="tool_use")
        else:
            answer = messages({"type": "text", "text": "There is one."})
        await wire.stream(*answer)

    project = tmp_path / "project"
    project.mkdir()
    async with (
        engine(script=script, models=("weft-demo",)) as stub,
        weft(stub) as gateway,
    ):
        agent = agents.claude_code(gateway.url, tmp_path / "home", project)
        result = await asyncio.to_thread(
            agent.run, "-p", "Delegate this.", "--allowedTools", "Agent"
        )
        assert result.status == 0, result.output
        (session,) = (await gateway.client.get("/v1/sessions", headers=KEY)).json()["data"]
        path = f"/v1/sessions/{session['id']}/story"
        trace = (await gateway.client.get(path, headers=KEY)).json()
        parents = {thread["thread"]: thread["parent"] for thread in trace["threads"]}
        assert parents.pop("main") is None
        assert list(parents.values()) == ["main"], "the main loop has not exactly one sub-agent"
