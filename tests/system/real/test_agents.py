"""Real agents, unmodified, against `weft up` with real engines, set up as the README says.

The demo model has random weights, so the content of its answers is meaningless. The tests check
that an agent makes its calls, reads the answers, and that all its calls are one program.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import agents, guides
from support.stack import Stack
from support.waiting import RUN_S

pytestmark = [pytest.mark.system, pytest.mark.engine]

TASK = "List the files here."
KEY = {"authorization": f"Bearer {agents.KEY}"}
AI_SDK = Path(agents.__file__).with_name("ai_sdk.mjs")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a project for the agent."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "hello.py").write_text('print("Hello")\n')
    return made


def only_session(stack: Stack) -> dict[str, Any]:
    """Return the only program."""
    got = httpx.get(f"{stack.url}/v1/sessions", headers=KEY).json()["data"]
    assert len(got) == 1, got
    session: dict[str, Any] = got[0]
    return session


def receipts(stack: Stack, session: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the receipts of a program's calls."""
    got = httpx.get(f"{stack.url}/v1/sessions/{session['id']}/story", headers=KEY).json()
    found: list[dict[str, Any]] = got["receipts"]
    return found


def test_codex_uses_one_websocket(stack, home, folder):
    agent = agents.codex(stack.url, home, folder, readme=True)
    result = agent.run("exec", "--skip-git-repo-check", TASK)
    assert result.status == 0, result.output
    for trouble in ("Reconnecting", "Falling back", "failed to connect", "stream error"):
        assert trouble not in result.output
    session = only_session(stack)
    assert session["known_by"] == "session-id"
    assert (session["calls"] > 0, session["errors"]) == (True, 0)
    # Codex prints its session id.
    assert f"session id: {session['id']}" in result.output
    calls = receipts(stack, session)
    assert {call["endpoint"] for call in calls} == {"responses"}
    assert {(call["thread"], call["parent"]) for call in calls} == {(session["id"], None)}
    assert calls[0]["actual"]["prompt_tokens"] > 8_192, "the prompt of Codex is shorter"


def test_claude_code_completes_a_task(stack, home, folder):
    result = agents.claude_code(stack.url, home, folder, output=1024, readme=True).run("-p", TASK)
    # The demo model sometimes reaches the output limit, which Claude Code reports as an error.
    assert result.status == 0 or "output token maximum" in result.output, result.output
    assert result.output.strip()
    session = only_session(stack)
    assert session["known_by"] == "x-claude-code-session-id"
    assert session["errors"] == 0
    calls = receipts(stack, session)
    assert {call["endpoint"] for call in calls} == {"messages"}
    assert {(call["thread"], call["parent"]) for call in calls} == {("main", None)}
    assert max(call["actual"]["prompt_tokens"] for call in calls) > 8_192


def test_opencode_completes_a_task(stack, home, folder):
    result = agents.opencode(stack.url, home, folder, output=256, readme=True).run("run", TASK)
    assert result.status == 0, result.output
    assert "compact" not in result.output.lower()
    session = only_session(stack)
    assert session["known_by"] == "x-session-id"
    assert session["errors"] == 0
    calls = receipts(stack, session)
    # One call is for the title of the session, and one for the answer.
    assert 1 <= len(calls) <= 3
    assert {call["endpoint"] for call in calls} == {"chat"}
    assert {(call["thread"], call["parent"]) for call in calls} == {("main", None)}


def test_the_ai_sdk_ignores_tool_dispatch_events(stack, tmp_path):
    node = shutil.which("node")
    modules = agents.install(*agents.packages("vercel-ai-sdk")) / "node_modules"
    assert node is not None, "node is missing"
    (tmp_path / "node_modules").symlink_to(modules)
    script = shutil.copy(AI_SDK, tmp_path)
    done = subprocess.run(
        [node, script, f"{stack.url}/v1"],
        cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=True,
    )  # fmt: skip
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["api"] for each in reports] == ["messages", "responses", "chat"]
    for each in reports:
        assert each["errors"] == [], each
        assert each["parts"]["tool-call"] == 1


PYTHON = {
    "LangGraph": """
from langchain_openai import ChatOpenAI
{row}
print(model.invoke("Say hello.", max_tokens=32))
""",
    "OpenAI Agents SDK": """
from agents import Agent, ModelSettings, Runner
agent = Agent(name="guide", model="weft-demo", model_settings=ModelSettings(max_tokens=32))
try:
    print(Runner.run_sync(agent, "Say hello.").final_output)
except Exception as error:  # The demo model's answer reaches the limit of tokens.
    assert "max" in str(error).lower() or "incomplete" in str(error).lower(), error
""",
}


@pytest.mark.parametrize("agent", PYTHON)
def test_python_frameworks_start_as_the_readme_says(stack, tmp_path, agent):
    row = guides.row(agent, stack.url)
    script = tmp_path / "agent.py"
    script.write_text(PYTHON[agent].format(row=row))
    subprocess.run(
        [sys.executable, script], env=os.environ | guides.variables(row), timeout=RUN_S, check=True
    )
    session = only_session(stack)
    assert (session["calls"] > 0, session["errors"]) == (True, 0)


def test_the_ai_sdk_starts_as_the_readme_says(stack, tmp_path):
    node = shutil.which("node")
    modules = agents.install(*agents.packages("vercel-ai-sdk")) / "node_modules"
    assert node is not None, "node is missing"
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "agent.mjs").write_text(
        'import { generateText } from "ai";\nimport { createOpenAI } from "@ai-sdk/openai";\n'
        + guides.row("Vercel AI SDK", stack.url)
        + '\nconst asked = { prompt: "Hello", maxOutputTokens: 32 };'
        + '\nawait generateText({ model: openai("weft-demo"), ...asked });'
    )
    subprocess.run([node, "agent.mjs"], cwd=tmp_path, timeout=RUN_S, check=True)
    session = only_session(stack)
    assert (session["id"], session["errors"]) == ("sdk-run-1", 0)
