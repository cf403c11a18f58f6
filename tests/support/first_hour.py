"""Replays a newcomer's first hour: README and guides, as they stand, with today's newest packages.

    make first-hour

It starts the demo stack with `make up`, and runs each agent of the guides with and without a
terminal, both kinds of batches, a batch workflow, and a gateway with keys; it checks the compose
files. It prints a line for each step: ok, FAILED with the reason, or "not installed" with the
reason. The exit status is 1 if a step failed. It needs npm, and access to PyPI and npm's registry.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from support.waiting import RUN_S

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import httpx  # noqa: E402
from support import agents, guides  # noqa: E402
from support.stack import SECRET, free_port  # noqa: E402

TASK = "List the files here."
BIN = ROOT / ".venv" / "bin"
# The demo model may write thousands of tokens, on a slow machine.


class Failed(Exception):
    """A step did not do what its page says. Its text is the reason."""


class Running:
    """A command that prints a line with `ready` when it can be used. lines: its output so far."""

    def __init__(self, command: list[str], ready: str, **variables: str) -> None:
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "WEFT_ENGINE_SECRET": SECRET, **variables},
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(ready,), daemon=True).start()
        if not self._ready.wait(RUN_S) or self._process.poll() is not None:
            self.stop()
            raise Failed(f"{shlex.join(command)} is not ready:\n" + "".join(self.lines[-20:]))

    def _read(self, ready: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if ready in line:
                self._ready.set()
        self._ready.set()

    def stop(self) -> None:
        """Press Ctrl-C, and wait until the command has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(RUN_S)


@dataclass(frozen=True)
class Hour:
    """The state that a step gets.

    url: of the gateway. folder: for its files, empty at first. environments: folder with the
    Python environments of all steps; None: the checkout's environment serves all. printed: the
    lines of `make up`.
    """

    url: str
    folder: Path
    environments: Path | None = None
    printed: Sequence[str] = ()

    def shell(self, command: str, *paths: Path, **variables: str) -> str:
        """Run a command line in the step's folder, and return its output.

        paths: folders to search for its programs first.
        """
        search = os.pathsep.join([*map(str, paths), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": search, "HOME": str(self.folder), **variables},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        if done.returncode:
            raise Failed(f"status {done.returncode}: {done.stdout[-750:]}{done.stderr[-750:]}")
        return done.stdout

    def calls(self) -> tuple[int, int]:
        """Return the numbers of calls that have ended, and of those that ended with an error."""
        found = httpx.get(f"{self.url}/v1/sessions", params={"limit": 1000}).json()["data"]
        ended = sum(program["calls"] - program["calls_in_flight"] for program in found)
        return ended, sum(program["errors"] for program in found)

    def called(self, act: Callable[[], object]) -> str:
        """Act, and say how many calls this made. Raises Failed if it made none, or a wrong one."""
        before, wrong = self.calls()
        act()
        after, wrong_after = self.calls()
        if after == before or wrong_after > wrong:
            raise Failed(f"{after - before} calls, {wrong_after - wrong} with errors")
        return f"{after - before} call{'s' * (after - before > 1)}"

    def project(self) -> Path:
        """Return a new project for an agent."""
        made = self.folder / "project"
        made.mkdir()
        (made / "hello.py").write_text('print("Hello")\n')
        return made

    def python(self, guide: str) -> Path:
        """Return the programs of an environment with the newest packages of a guide.

        Raises NotInstalled.
        """
        if self.environments is None:
            return BIN
        names = [package.rpartition("@")[0] for package in guides.packages(guide)]
        made = self.environments / guide
        if (made / "installed").is_file():
            return made / "bin"
        for command in (
            [sys.executable, "-m", "venv", str(made)],
            [str(made / "bin" / "pip"), "install", "--quiet", *names],
        ):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=RUN_S, check=False
            )
            if done.returncode:
                raise agents.NotInstalled(done.stderr[-300:])
        (made / "installed").touch()
        return made / "bin"


def printed_lines(hour: Hour) -> str:
    """The lines that `make up` prints."""
    for name in ("curl", str(BIN / "python")):
        (line,) = [line for line in hour.printed if line.startswith(f"{name} ")]
        hour.called(lambda line=line: hour.shell(line))
    replicas = httpx.get(f"{hour.url}/health").json()["replicas"]
    return f"{len(replicas)} replicas"


def readme(hour: Hour) -> str:
    """The first calls of the README."""
    command = guides.blocks("README.md", hour.url, "Start")[1]
    return hour.called(lambda: hour.shell(command))


def get_started(hour: Hour) -> str:
    """A call and its receipt, as the page says."""
    (call,) = guides.blocks("docs/start.md", hour.url, "2. Send a call")
    (receipt,) = guides.blocks("docs/start.md", hour.url, "3. Ask why")
    answer = hour.shell(f'curl() {{ command curl --silent --fail-with-body "$@"; }}\n{call}')
    (request_id,) = re.findall(r"(?im)^x-request-id: *(\S+)", answer)
    shown = json.loads(hour.shell(receipt.partition("#")[0].replace("REQUEST_ID", request_id)))
    return f"the receipt of {shown['request_id']}"


def codex(hour: Hour) -> str:
    agent = agents.codex(hour.url, hour.folder / "home", hour.project(), newest=True)
    return _ran(hour, agent, "exec", "--skip-git-repo-check", TASK)


def codex_terminal(hour: Hour) -> str:
    agent = agents.codex(hour.url, hour.folder / "home", hour.project(), newest=True)
    return _shown(hour, agent, TASK)


def claude_code(hour: Hour) -> str:
    agent = agents.claude_code(hour.url, hour.folder / "home", hour.project(), newest=True)
    return _ran(hour, agent, "-p", TASK)


def claude_code_terminal(hour: Hour) -> str:
    agent = agents.claude_code(hour.url, hour.folder / "home", hour.project(), newest=True)
    return _shown(hour, agent, "--permission-mode", "default", TASK)


def opencode(hour: Hour) -> str:
    agent = agents.opencode(hour.url, hour.folder / "home", hour.project(), newest=True)
    return _ran(hour, agent, "run", TASK)


def opencode_terminal(hour: Hour) -> str:
    agent = agents.opencode(hour.url, hour.folder / "home", hour.project(), newest=True)
    return _shown(hour, agent, "--prompt", TASK)


def aider(hour: Hour) -> str:
    agent, options = _aider(hour)
    return _ran(hour, agent, *options, "--message", "/ask Say hello.")


def aider_terminal(hour: Hour) -> str:
    agent, options = _aider(hour)
    replies = (
        ("Nogitrepofound", "\r"),
        ("seewhat'snewinthisversion?", "n\r"),
        # The prompt.
        ("─>", "/ask Say hello.\r"),
    )
    return _shown(hour, replace(agent, replies=replies), *options)


def langgraph(hour: Hour) -> str:
    program = guides.blocks("langgraph", hour.url)[0]
    (hour.folder / "guide.py").write_text(
        f'{program}\nprint(model.invoke("Say hello.", max_tokens=32).content)\n'
    )
    paths = hour.python("langgraph")
    example = shlex.quote(str(ROOT / "gateway/weft_programs/examples/langgraph_agent.py"))
    return hour.called(
        lambda: hour.shell(f"python guide.py && python {example} {hour.url}/v1", paths)
    )


def openai_agents(hour: Hour) -> str:
    program = guides.blocks("openai-agents", hour.url)[0]
    (hour.folder / "guide.py").write_text(
        f'{program}\nprint(Runner.run_sync(agent, "Say hello.").final_output)\n'
    )
    paths = hour.python("openai-agents")
    example = shlex.quote(str(ROOT / "gateway/weft_programs/examples/openai_agents.py"))
    return hour.called(
        lambda: hour.shell(f"python guide.py && python {example} {hour.url}/v1", paths)
    )


def ai_sdk(hour: Hour) -> str:
    program = guides.blocks("vercel-ai-sdk", hour.url)[0]
    uses = "".join(
        f'console.log((await generateText({{ model: {model}("weft-demo"), prompt: "Hello", '
        "maxOutputTokens: 32 })).usage);\n"
        for model in ("openai.responses", "openai.chat", "anthropic")
    )
    text = f'import {{ generateText }} from "ai";\n{program}\n{uses}'
    (hour.folder / "guide.mjs").write_text(text)
    modules = agents.installed(*agents.packages("vercel-ai-sdk", newest=True)) / "node_modules"
    (hour.folder / "node_modules").symlink_to(modules)
    return hour.called(lambda: hour.shell("node guide.mjs"))


def openai_batch(hour: Hour) -> str:
    (lines,) = guides.blocks("batches", hour.url, "With OpenAI's client")
    (hour.folder / "requests.jsonl").write_text(f"{lines}\n")
    return _batch(hour, "With OpenAI's client", '"custom_id":"row-2"')


def anthropic_batch(hour: Hour) -> str:
    return _batch(hour, "With Anthropic's client", "row-1succeeded")


def workflow(hour: Hour) -> str:
    """The example of the batch workflows."""
    (command,) = guides.blocks("batch-workflows", hour.url, "Run an example")
    output = hour.shell(f"set -e\n{command} --gateway {hour.url}", BIN)
    rows = (hour.folder / "examples" / "report.jsonl").read_text().splitlines()
    if not rows or not all('"error": null' in row or '"error":null' in row for row in rows):
        raise Failed(f"{rows[:3]}\n{output[-1500:]}")
    return f"{len(rows)} rows"


def keys(hour: Hour) -> str:
    """A gateway with keys in front of the same engines, as the page about tenants says."""
    port = free_port()
    replicas = httpx.get(f"{hour.url}/health").json()["replicas"]
    options = [word for replica in replicas for word in ("--replica", replica["url"])]
    command = [str(BIN / "weft"), "serve", "--port", str(port), *options]
    gateway = Running(command, ": serving http", WEFT_API_KEYS="sk-search,sk-batch")
    try:
        body = {
            "model": "weft-demo",
            "max_tokens": 8,
            "messages": [{"role": "user", "content": "x"}],
        }
        found = []
        for key in ("sk-search", "sk-batch", "none", ""):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            found.append(httpx.post(url, json=body, headers=headers, timeout=RUN_S).status_code)
    finally:
        gateway.stop()
    if found != [200, 200, 401, 401]:
        raise Failed(f"two keys, another one and none: {found}")
    return "200 with a key, 401 without"


def emulated(hour: Hour) -> str:
    """Emulated engines, as get started says."""
    (command,) = guides.blocks("docs/start.md", hour.url, "5. Queue as on a GPU")
    port = free_port()
    options = shlex.split(command)[-1].removeprefix("ARGS=")
    stack = Running(["make", "up", f"ARGS={options} --port {port}"], "Ctrl-C stops")
    try:
        models = httpx.get(f"http://127.0.0.1:{port}/v1/models").json()["data"]
        (line,) = [line for line in stack.lines if line.startswith("curl ")]
        hour.shell(line)
    finally:
        stack.stop()
    return ", ".join(model["id"] for model in models)


def compose(hour: Hour) -> str:
    """The compose files, without Docker: their schema, commands, ports, paths and variables."""
    hour.shell(
        f"cd {shlex.quote(str(ROOT))} && python -m pytest tests/unit/deploy/test_compose.py", BIN
    )
    return "parsed and checked"


STEPS: tuple[Callable[[Hour], str], ...] = (
    printed_lines, readme, get_started, codex, codex_terminal, claude_code, claude_code_terminal,
    opencode, opencode_terminal, aider, aider_terminal, langgraph, openai_agents, ai_sdk,
    openai_batch, anthropic_batch, workflow, keys, emulated, compose,
)  # fmt: skip


def _ran(hour: Hour, agent: agents.Agent, *arguments: str) -> str:
    """Run an agent without a terminal."""

    def act() -> None:
        result = agent.run(*arguments, wait_s=RUN_S)
        # The demo model's random answers can be too long, which Claude Code reports as an error.
        if result.status and "output token maximum" not in result.output:
            raise Failed(f"status {result.status}: {result.output[-1500:]}")

    return hour.called(act)


def _shown(hour: Hour, agent: agents.Agent, *arguments: str) -> str:
    """Run an agent in a terminal until it has made a call."""
    before, _ = hour.calls()

    def act() -> None:
        with agent.terminal(*arguments) as terminal:
            terminal.until(lambda: hour.calls()[0] > before, RUN_S, agent.sign_in)

    return hour.called(act)


def _aider(hour: Hour) -> tuple[agents.Agent, list[str]]:
    """Return aider and the options of its guide."""
    _, metadata = guides.blocks("aider", hour.url)
    settings = guides.row("aider", hour.url)
    folder = hour.project()
    (folder / ".aider.model.metadata.json").write_text(metadata)
    program = hour.python("aider") / "aider"
    options = shlex.split(settings.splitlines()[-1])[1:]
    return agents.Agent(program, hour.folder / "home", folder, guides.variables(settings)), options


def _batch(hour: Hour, heading: str, wanted: str) -> str:
    (hour.folder / "batch.py").write_text(guides.python("batches", hour.url, heading))
    output = hour.shell("python batch.py", hour.python("batches"))
    if wanted not in output.replace(" ", ""):
        raise Failed(output[-1500:])
    return "completed"


def main() -> int:
    names = [step.__name__ for step in STEPS]
    parser = argparse.ArgumentParser(description="Replay a newcomer's first hour.")
    parser.add_argument("steps", nargs="*", help=f"a part of {', '.join(names)}")
    chosen = parser.parse_args().steps or names
    if unknown := set(chosen) - set(names):
        parser.error(f"no step is called {', '.join(sorted(unknown))}")
    port = free_port()
    stack = Running(["make", "up", f"ARGS=--replicas 2 --port {port}"], "Ctrl-C stops")
    results: Counter[str] = Counter()
    environments = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        for step in STEPS:
            if step.__name__ in chosen:
                begun = time.monotonic()
                result, reason = _step(
                    step, f"http://127.0.0.1:{port}", stack, Path(environments.name)
                )
                results[result] += 1
                took = f"{time.monotonic() - begun:6.1f} s"
                print(f"{step.__name__:22} {took}  {result:13}  {reason}", flush=True)
    finally:
        stack.stop()
        environments.cleanup()
    print("\n" + ", ".join(f"{count} {result}" for result, count in results.items()))
    return int("FAILED" in results)


def _step(
    step: Callable[[Hour], str], url: str, stack: Running, environments: Path
) -> tuple[str, str]:
    """Return the result of a step, and its reason."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            return "ok", step(Hour(url, Path(folder), environments, stack.lines))
        except agents.NotInstalled as error:
            return "not installed", str(error)
        except (Failed, AssertionError, subprocess.TimeoutExpired) as error:
            return "FAILED", str(error)


if __name__ == "__main__":
    sys.exit(main())
