"""One play of the workflow by one system: wall time, prompt tokens and answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from weft_bench.mapred import langgraph_play
from weft_bench.mapred.workload import workflow

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
    """gateway: base URL. engines: base URLs of its engines. model: the one that they serve."""

    gateway: str
    engines: tuple[str, ...]
    model: str

    @classmethod
    def at(cls, gateway: str) -> Servers:
        """Ask a gateway. Raises httpx.HTTPError."""
        health = httpx.get(f"{gateway}/health", trust_env=False).json()
        card = httpx.get(f"{gateway}/v1/models", trust_env=False).json()["data"][0]
        return cls(gateway, tuple(one["url"] for one in health["replicas"]), card["id"])

    def reset(self) -> None:
        """Empty the prefix caches of all engines. Raises httpx.HTTPError."""
        url, body = f"{self.gateway}/weft/policy", {"policy": "resident", "reset_cache": True}
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
class Played:
    """seconds: wall time. prompt, cached: tokens of prompts, and those that the engines had in
    their caches. calls: that the engines have answered. late: share of the time of emulated devices
    that they waited for this machine. answers: by row.
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


# Plays the rows with a number of tokens in each answer, in a folder. Returns wall time and answers.
Play = Callable[[Servers, Sequence[Mapping[str, str]], int, Path], tuple[float, list[str]]]


def play(
    system: Play, servers: Servers, rows: Sequence[Mapping[str, str]], tokens: int, folder: Path
) -> Played:
    """Play with empty caches. Raises PlayError and httpx.HTTPError."""
    servers.reset()
    before = servers.counters()
    seconds, answers = system(servers, rows, tokens, folder)
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


def weft_run(
    servers: Servers, rows: Sequence[Mapping[str, str]], tokens: int, folder: Path
) -> tuple[float, list[str]]:
    """`weft run`, with the start of its process and its planning."""
    (folder / "mapred.yaml").write_text(workflow(servers.model, tokens))
    (folder / "in.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    command = [
        sys.executable, "-m", "weft_gateway.cli", "run", "mapred.yaml", "--input", "in.jsonl",
        "--output", "out.jsonl", "--gateway", servers.gateway, "--quiet",
    ]  # fmt: skip
    begun = time.perf_counter()
    _run(command, folder)
    seconds = time.perf_counter() - begun
    lines = (folder / "out.jsonl").read_bytes().splitlines()
    return seconds, [orjson.loads(line)["answer"] for line in lines]


def langgraph(direct: bool) -> Play:
    """LangGraph's `abatch` over the gateway, or over the engines in turn."""

    def played(
        servers: Servers, rows: Sequence[Mapping[str, str]], tokens: int, folder: Path
    ) -> tuple[float, list[str]]:
        urls = servers.engines if direct else (servers.gateway,)
        given, output = folder / "rows.json", folder / "answers.json"
        given.write_text(json.dumps(list(rows)))
        asked = langgraph_play.Play(
            [f"{url}/v1" for url in urls], servers.model, tokens, str(given), str(output)
        )
        command = [sys.executable, "-m", langgraph_play.__name__, json.dumps(asdict(asked))]
        found = json.loads(_run(command, folder).splitlines()[-1])
        return float(found["seconds"]), json.loads(output.read_text())

    return played


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
