"""One play of a workflow by one system: wall time, prompt tokens and answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from weft_bench.rows import langgraph_play, weft_play

_TIMEOUT_S: Final = 3600.0
_COUNTERS: Final = {
    "prompt": "vllm:prompt_tokens_total",
    "cached": "vllm:prefix_cache_hits_total",
    "calls": "vllm:request_success_total",
    "busy": "weft_emulated_busy_seconds_total",
    "late": "weft_emulated_late_seconds_total",
}


class PlayError(RuntimeError):
    """A system has not finished the workflow. The message contains its output."""


@dataclass(frozen=True, slots=True)
class Servers:
    """gateway: base URL. engines: base URLs of its engines. model: the name that they serve."""

    gateway: str
    engines: tuple[str, ...]
    model: str

    def reset(self) -> None:
        """Empty the prefix caches of all engines. Raises httpx.HTTPError.

        A change of the order would also drop what engines have learned about programs.
        """
        url, body = f"{self.gateway}/weft/policy", {"reset_cache": True}
        answer = httpx.post(url, json=body, timeout=60, trust_env=False)
        answer.raise_for_status()

    def counters(self) -> dict[str, float]:
        """Return totals of all engines since their start."""
        totals = dict.fromkeys(_COUNTERS, 0.0)
        for url in self.engines:
            text = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).text
            for line in text.splitlines():
                for name, series in _COUNTERS.items():
                    if line.startswith((f"{series} ", f"{series}{{")):
                        totals[name] += float(line.rpartition(" ")[2])
        return totals


@dataclass(frozen=True, slots=True)
class Task:
    """A workflow over rows. text: for `weft run`. tokens: of each answer."""

    text: str
    tokens: int
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Played:
    """seconds: wall time, without the start of the process and its imports. prompt, cached: tokens
    of prompts, and those that the engines had in their caches. calls: that the engines have
    answered. late: share of the steps of emulated devices that they waited for this machine.
    answers: by row.
    """

    seconds: float
    prompt: int
    cached: int
    calls: int
    late: float
    answers: tuple[str, ...]

    @property
    def computed(self) -> int:
        """Prompt tokens that the engines have computed."""
        return self.prompt - self.cached


# Plays a task, in a folder. Returns wall time and answers.
Play = Callable[[Servers, Task, Path], tuple[float, list[str]]]


def play(system: Play, servers: Servers, task: Task, folder: Path) -> Played:
    """Play with empty caches. Raises PlayError and httpx.HTTPError."""
    servers.reset()
    before = servers.counters()
    seconds, answers = system(servers, task, folder)
    after = servers.counters()
    found = {name: after[name] - before[name] for name in before}
    return Played(
        seconds,
        int(found["prompt"]),
        int(found["cached"]),
        int(found["calls"]),
        found["late"] / found["busy"] if found["busy"] else 0.0,
        tuple(answers),
    )


def weft_run(servers: Servers, task: Task, folder: Path) -> tuple[float, list[str]]:
    """`weft run`, with its planning."""
    command = [
        sys.executable, "-m", weft_play.__name__, "workflow.yaml", "--input", "in.jsonl",
        "--output", "out.jsonl", "--gateway", servers.gateway, "--quiet",
    ]  # fmt: skip
    (folder / "workflow.yaml").write_text(task.text)
    rows = b"".join(orjson.dumps(row) + b"\n" for row in task.rows)
    (folder / "in.jsonl").write_bytes(rows)
    seconds = _seconds(_run(command, folder))
    lines = map(orjson.loads, (folder / "out.jsonl").read_bytes().splitlines())
    return seconds, [line["answer"] for line in lines]


def langgraph(direct: bool) -> Play:
    """LangGraph's `abatch` over the gateway, or over the engines in turn."""

    def played(servers: Servers, task: Task, folder: Path) -> tuple[float, list[str]]:
        given, output = folder / "rows.json", folder / "answers.json"
        given.write_text(json.dumps(list(task.rows)))
        urls = [f"{url}/v1" for url in (servers.engines if direct else (servers.gateway,))]
        asked = langgraph_play.Play(urls, servers.model, task.tokens, str(given), str(output))
        command = [sys.executable, "-m", langgraph_play.__name__, json.dumps(asdict(asked))]
        seconds = _seconds(_run(command, folder))
        return seconds, json.loads(output.read_text())

    return played


def _seconds(output: str) -> float:
    return float(json.loads(output.splitlines()[-1])["seconds"])


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a command to its end. Returns its output. Raises PlayError."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S,
        env=_environment(), check=False,
    )  # fmt: skip
    if done.returncode:
        raise PlayError(done.stderr[-4000:])
    return done.stdout


def _environment() -> dict[str, Any]:
    # A client of a benchmark sends no traces.
    return {**os.environ, "LANGSMITH_TRACING": "false"}
