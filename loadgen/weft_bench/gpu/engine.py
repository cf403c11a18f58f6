"""Starts one engine and its gateway for a bench, and reads vLLM's counters."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from weft_bench.cli.gpu import GpuOptions
from weft_bench.drive.client import Client, Refused
from weft_bench.gpu.systems import (
    GATEWAY_ENVIRONMENT,
    System,
    engine_command,
    engine_environment,
    gateway_command,
)
from weft_bench.stack.processes import NotReady, free_port, running

_IDLE_S: Final = 60.0
_POLL_S: Final = 0.1
_GATEWAY_S: Final = 120.0
_ERROR: Final = re.compile(r"(?<![\w`.])[A-Z]\w*(?:Error|Exception|Version): .{1,400}")
_ERRORS: Final = 4
_LAST_LINES: Final = 12


class EngineError(RuntimeError):
    """The engine lacks something that a bench needs. The message gives the cause."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of one engine since its start, from its `/metrics`.

    queried, hit: tokens of prompts looked up and found in the prefix cache.
    """

    queried: float = 0.0
    hit: float = 0.0
    preemptions: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0

    def since(self, earlier: Counts) -> Counts:
        """Return the difference from earlier counts."""
        return Counts(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))


_SERIES: Final = {
    "queried": "vllm:prefix_cache_queries_total",
    "hit": "vllm:prefix_cache_hits_total",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
}
_BUSY: Final = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_CACHE: Final = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True)
class Started:
    """A ready engine behind a gateway. start_s: the engine's start time. log: its output."""

    engine: str
    gateway: str
    start_s: float
    log: Path


@contextmanager
def started(
    system: System,
    options: GpuOptions,
    model: Path,
    logs: Path,
    wait_s: float,
    *,
    experiments: bool = False,
) -> Iterator[Started]:
    """Start both, and end both after the block.

    logs: folder for their output. wait_s: time limit for the engine's start. Raises EngineError
    with the cause if the engine fails to start, and NotReady if the gateway does.
    """
    port = free_port()
    engine = f"http://127.0.0.1:{port}"
    command = engine_command(system, options, model, port)
    variables = {**os.environ, **engine_environment(system, options, experiments=experiments)}
    log = logs / "engine.log"
    begun = time.monotonic()
    with ExitStack() as stack:
        try:
            stack.enter_context(running(command, f"{engine}/health", log, variables, wait_s))
        except NotReady:
            raise EngineError(f"the engine did not start: {cause(log)}") from None
        start_s = time.monotonic() - begun
        # Choose the port late: an engine starts for minutes, in which another process may take it.
        port = free_port()
        gateway = f"http://127.0.0.1:{port}"
        line = gateway_command(system, engine, port)
        ready, variables = f"{gateway}/ready", {**os.environ, **GATEWAY_ENVIRONMENT}
        stack.enter_context(running(line, ready, logs / "gateway.log", variables, _GATEWAY_S))
        yield Started(engine, gateway, start_s, log)


def cause(log: Path) -> str:
    """Return the cause of an engine's failure from its output.

    It lists the first errors, then the end of the log. vLLM's last error only refers to an earlier
    one, which may be far above.
    """
    text = log.read_text(errors="replace")
    errors = list(dict.fromkeys(found.strip() for found in _ERROR.findall(text)))
    end = "\n".join(text.splitlines()[-_LAST_LINES:])
    said = "\n".join(errors[:_ERRORS]) or "its log has no error; it may be slow"
    return f"{said}\nThe end of its log:\n{end}"


def series(text: str) -> Mapping[str, float]:
    """Return the sums of a `/metrics` page over its labels, by sample."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def counts_of(text: str) -> Counts:
    """Return the counts on a `/metrics` page. Raises EngineError if vLLM's samples are missing."""
    found = series(text)
    if missing := [name for name in _SERIES.values() if name not in found]:
        raise EngineError(f"the engine's /metrics has no {missing[0]}")
    return Counts(**{name: found[sample] for name, sample in _SERIES.items()})


def cache_of(text: str) -> tuple[int, int]:
    """Return the engine's KV blocks and the tokens per block. Raises EngineError."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _CACHE:
                try:
                    return int(sample.labels["num_gpu_blocks"]), int(sample.labels["block_size"])
                except (KeyError, ValueError):
                    break
    raise EngineError(f"the engine's /metrics has no {_CACHE} with block counts")


async def metrics(engine: Client) -> str:
    """Return the engine's `/metrics`. Raises OSError or Refused."""
    answer = await engine.get("/metrics")
    if answer.status != 200:
        raise Refused(f"/metrics: {answer.status}: {answer.text[:300]}")
    return answer.text


async def fresh(engine: Client) -> None:
    """Wait until the engine is idle, then clear prefix cache and swap.

    Raises EngineError, OSError and Refused.
    """
    deadline = time.monotonic() + _IDLE_S
    while True:
        found = series(await metrics(engine))
        if not any(found.get(name, 0.0) for name in _BUSY):
            answer = await engine.post("/reset_prefix_cache?reset_external=true")
            if answer.json().get("success"):
                return
        if time.monotonic() > deadline:
            raise EngineError("the engine is still busy with abandoned calls")
        await asyncio.sleep(_POLL_S)
