"""Emulated engines for tests: real vLLM processes, and their counters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any

import httpx
from support.stack import ROOT, SECRET, free_port, until
from support.waiting import RUN_S

MODEL = "emulated-8b"
# More than three calls of 300 tokens, less than eight.
FEW_BLOCKS = ("--num-gpu-blocks-override", "100", "--max-num-seqs", "8")


@dataclass
class EmulatedEngine:
    """`weft replica --emulated` as a process. It starts with `start` and is ready after `wait`."""

    options: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: Any = None

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = Path(tempfile.mkdtemp()) / "engine.log"

    def start(self) -> None:
        command = ("replica", "--emulated", "--port", str(self.port), *self.options)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "weft_gateway.cli", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "WEFT_ENGINE_SECRET": SECRET, **self.environment},
                start_new_session=True,
            )

    def wait(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.output()
            try:
                return httpx.get(f"{self.url}/health").status_code == 200
            except httpx.HTTPError:
                return False

        until(ready, "the engine is not ready", wait_s=RUN_S)

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return int(self.process.wait(RUN_S))
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


def counters(url: str) -> dict[str, float]:
    """Return the device's totals, without their common prefix."""
    found = {}
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith("weft_emulated_"):
            name, value = line.removeprefix("weft_emulated_").split()
            found[name.removesuffix("_total")] = float(value)
    return found


def settled(url: str) -> dict[str, float]:
    """Return the totals once they stop changing. The engine may still run a step that it scheduled
    before it knew that a call was over."""
    found = [counters(url)]
    while len(found) < 4 or found[-4:].count(found[-1]) < 4:
        sleep(0.1)
        found.append(counters(url))
    return found[-1]


def total(url: str, name: str) -> float:
    """Return the sum of one of vLLM's counters."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


def prompt(number: int, words: int) -> str:
    return f"number {number} " * words


def complete(url: str, text: str | list[str], tokens: int, **more: Any) -> Any:
    body = {"model": MODEL, "prompt": text, "max_tokens": tokens, "ignore_eos": True, **more}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=RUN_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def together(url: str, calls: Sequence[int], words: int, tokens: int) -> list[str]:
    """Send calls at once, and return their texts. Each sequence has all its tokens.

    calls: the number of sequences in each call. Those of one call arrive together on any machine.
    """

    def one(number: int) -> list[str]:
        prompts = [prompt(10 * number + index, words) for index in range(calls[number])]
        answer = complete(url, prompts, tokens)
        assert answer["usage"]["completion_tokens"] == tokens * len(prompts)
        return [choice["text"] for choice in answer["choices"]]

    with ThreadPoolExecutor(len(calls)) as pool:
        return [text for texts in pool.map(one, range(len(calls))) for text in texts]


def engine_state(url: str) -> Any:
    """Return the state of the plugin in an engine."""
    answer = httpx.get(f"{url}/weft/state", headers={"x-weft-secret": SECRET})
    return json.loads(answer.text)["engines"][0]
