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

from weft_bench.mapred import algorithm_1, langgraph_play, weft_play

_TIMEOUT_S: Final = 3600.0
_COUNTERS: Final = {
    "prompt": "vllm:prompt_tokens_total",
    "cached": "vllm:prefix_cache_hits_total",
    "calls": "vllm:request_success_total",
    "busy": "weft_emulated_busy_seconds_total",
    "late": "weft_emulated_late_seconds_total",
}
# Columns of an output that are not the workflow's.
_OWN: Final = ("row", "error")


class PlayError(RuntimeError):
    """A system has not finished the workflow. The message contains its output."""


@dataclass(frozen=True, slots=True)
class Servers:
    """gateway: base URL. engines: base URLs of its engines, and the models of each. models: those
    that the gateway serves.
    """

    gateway: str
    engines: Mapping[str, tuple[str, ...]]
    models: tuple[str, ...]

    @classmethod
    def at(cls, gateway: str) -> Servers:
        """Ask a gateway. Raises httpx.HTTPError."""
        health = httpx.get(f"{gateway}/health", trust_env=False).json()
        cards = httpx.get(f"{gateway}/v1/models", trust_env=False).json()["data"]
        engines = {one["url"]: tuple(one["models"]) for one in health["replicas"]}
        return cls(gateway, engines, tuple(card["id"] for card in cards))

    def of(self, model: str) -> list[str]:
        """Return the base URLs of the engines of a model."""
        return [url for url, models in self.engines.items() if model in models]

    def reset(self) -> None:
        """Empty the prefix caches of all engines. Raises httpx.HTTPError.

        A change of the order would drop what engines have learned about programs, too.
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
    """A workflow over rows. graph: its name for LangGraph. text: for `weft run`. models: names, in
    the order of the workload. tokens: of each answer. databases: files of SQLite by connection.
    kv_tokens: that a replica's cache holds, for Algorithm 1.
    """

    graph: str
    text: str
    models: tuple[str, ...]
    tokens: int
    rows: Sequence[Mapping[str, Any]]
    databases: Mapping[str, str]
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class Played:
    """seconds: wall time, without the start of the process and its imports. prompt, cached: tokens
    of prompts, and those that the engines had in their caches. calls: that the engines have
    answered. busy: seconds of steps of all emulated devices. late: share of these that they waited
    for this machine. answers: by row.
    """

    seconds: float
    prompt: int
    cached: int
    calls: int
    busy: float
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
        found["busy"],
        found["late"] / found["busy"] if found["busy"] else 0.0,
        tuple(answers),
    )


def weft_run(servers: Servers, task: Task, folder: Path) -> tuple[float, list[str]]:
    """`weft run`, with its planning."""
    more = [part for name, file in task.databases.items() for part in _connection(name, file)]
    command = [
        sys.executable, "-m", weft_play.__name__, "workflow.yaml", "--input", "in.jsonl",
        "--output", "out.jsonl", "--gateway", servers.gateway, "--quiet", *more,
    ]  # fmt: skip
    return _timed(command, task, folder)


def by_algorithm_1(servers: Servers, task: Task, folder: Path) -> tuple[float, list[str]]:
    """The runner of `weft run` with Helium's Algorithm 1."""
    asked = algorithm_1.Play(
        servers.gateway, "workflow.yaml", "in.jsonl", "out.jsonl", dict(task.databases),
        task.kv_tokens,
    )  # fmt: skip
    return _timed(
        [sys.executable, "-m", algorithm_1.__name__, json.dumps(asdict(asked))], task, folder
    )


def langgraph(direct: bool) -> Play:
    """LangGraph's `abatch` over the gateway, or over the engines of each model in turn."""

    def played(servers: Servers, task: Task, folder: Path) -> tuple[float, list[str]]:
        given, output = folder / "rows.json", folder / "answers.json"
        given.write_text(json.dumps(list(task.rows)))
        bases = {model: servers.of(model) if direct else [servers.gateway] for model in task.models}
        asked = langgraph_play.Play(
            task.graph,
            {model: [f"{url}/v1" for url in urls] for model, urls in bases.items()},
            list(task.models),
            task.tokens,
            str(given),
            str(output),
            dict(task.databases),
        )
        command = [sys.executable, "-m", langgraph_play.__name__, json.dumps(asdict(asked))]
        seconds = _seconds(_run(command, folder))
        return seconds, [_text(one) for one in json.loads(output.read_text())]

    return played


def _connection(name: str, file: str) -> tuple[str, str]:
    return "--connection", f"{name}={file}"


def _timed(command: Sequence[str], task: Task, folder: Path) -> tuple[float, list[str]]:
    """Run a command on the workflow and its rows. Returns its seconds and answers."""
    (folder / "workflow.yaml").write_text(task.text)
    rows = b"".join(orjson.dumps(row) + b"\n" for row in task.rows)
    (folder / "in.jsonl").write_bytes(rows)
    seconds = _seconds(_run(command, folder))
    lines = map(orjson.loads, (folder / "out.jsonl").read_bytes().splitlines())
    return seconds, [_text({k: v for k, v in line.items() if k not in _OWN}) for line in lines]


def _seconds(output: str) -> float:
    return float(json.loads(output.splitlines()[-1])["seconds"])


def _text(outputs: Mapping[str, Any]) -> str:
    """Return the outputs of a row as a text that is equal for equal outputs."""
    return json.dumps(outputs, sort_keys=True)


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
