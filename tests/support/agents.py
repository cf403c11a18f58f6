"""Real, unmodified coding agents from npm, without access to the internet.

They are installed once, into the checkout's `.weft` folder. If the installation fails, the test is
skipped with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.stack import ROOT

CODEX = "@openai/codex@0.169.0"
CLAUDE_CODE = "@anthropic-ai/claude-code@2.1.197"
OPENCODE = "opencode-ai@1.18.33"
AI_SDK = ("ai@6.0.326", "@ai-sdk/anthropic@3.0.138", "@ai-sdk/openai@3.0.141")
KEY = "test"
# No process listens on this port: an agent's requests to other machines fail at once.
_NOWHERE = "http://127.0.0.1:9"


def install(*packages: str) -> Path:
    """Return the folder with these npm packages. Skip the test if they cannot be installed."""
    name = "-".join(package.replace("/", "_").replace("@", "") for package in packages)
    folder = ROOT / ".weft" / "agents" / name
    if (folder / "installed").is_file():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("not run: npm is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}')
    try:
        done = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--fetch-retries=1", *packages],
            cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("not run: npm did not install the agent within 10 minutes")
    if done.returncode:
        pytest.skip(f"not run: npm registry unreachable, or refuses {name}: {done.stderr[-300:]}")
    (folder / "installed").touch()
    return folder


@dataclass(frozen=True)
class Ran:
    """Result of an agent's run. output: standard output and standard error."""

    status: int
    output: str


def run(command: list[str], home: Path, folder: Path, wait_s: float = 240, **variables: str) -> Ran:
    """Run an agent in `folder` with its own home directory, and end all its processes."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TERM": "dumb",
        "HTTPS_PROXY": _NOWHERE,
        "HTTP_PROXY": _NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        **variables,
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=wait_s)
    finally:
        # Kill the whole group, because some helper processes outlive their agent.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return Ran(process.returncode, output)


def codex(url: str, home: Path, folder: Path, task: str) -> Ran:
    """Run `codex exec` with only the base URL of OpenAI's API changed."""
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        f'model = "weft-demo"\nopenai_base_url = "{url}/v1"\nmodel_context_window = 49152\n'
        "check_for_update_on_startup = false\n[analytics]\nenabled = false\n"
    )
    program = install(CODEX) / "node_modules" / ".bin" / "codex"
    command = [str(program), "exec", "--skip-git-repo-check", "--sandbox", "read-only", task]
    return run(command, home, folder, CODEX_HOME=str(home), CODEX_API_KEY=KEY)


def claude_code(url: str, home: Path, folder: Path, task: str, *options: str) -> Ran:
    """Run `claude -p`."""
    home.mkdir(exist_ok=True)
    program = install(CLAUDE_CODE) / "node_modules" / ".bin" / "claude"
    return run(
        [str(program), "-p", task, *options],
        home,
        folder,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_AUTH_TOKEN=KEY,
        ANTHROPIC_MODEL="weft-demo",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="weft-demo",
        CLAUDE_CODE_MAX_OUTPUT_TOKENS="1024",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )


def opencode(url: str, home: Path, folder: Path, task: str) -> Ran:
    """Run `opencode run`."""
    home.mkdir(exist_ok=True)
    model = {"name": "weft-demo", "limit": {"context": 49_152, "output": 256}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Weft",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {"weft-demo": model},
    }
    settings = {
        "model": "weft/weft-demo",
        "small_model": "weft/weft-demo",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"weft": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(settings))
    program = install(OPENCODE) / "node_modules" / ".bin" / "opencode"
    return run(
        [str(program), "run", task],
        home,
        folder,
        OPENCODE_DISABLE_AUTOUPDATE="1",
        OPENCODE_DISABLE_MODELS_FETCH="1",
        OPENCODE_DISABLE_LSP_DOWNLOAD="1",
        OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
    )
