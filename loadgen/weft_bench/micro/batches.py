"""`weft bench batches`: processor time and memory of a gateway that runs a batch.

The gateway and a mock engine without timing are processes. The figures are those of the gateway's
process, from the upload of the file until the end of the batch: all of its work counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import orjson

from weft_bench.cli.parts import BatchesOptions
from weft_bench.report.figures import finish
from weft_bench.report.rows import Column, figures, show
from weft_bench.stack.processes import free_port, running

_MODEL: Final = "mock"
_CHAT: Final = "/v1/chat/completions"
_COLUMNS: Final = (
    Column("wall", "s", "seconds", ".1f"),
    Column("rate", "1/s", "requests/s", ",.0f"),
    Column("cpu", "us", "processor time per request, us", ".0f"),
    Column("memory", "MiB", "largest memory, MiB", ".0f"),
    Column("before", "MiB", "memory before, MiB", ".0f"),
)
_WAIT_S: Final = 3600.0


def run(options: BatchesOptions) -> int:
    """Measure and report. Returns the exit status: 1 if a request has no result."""
    if options.beside:
        # Imports more than this bench needs.
        from weft_bench.micro import beside

        return beside.run(options)
    found = measure(options.requests, options.characters, options.topics)
    rows = {(f"{options.requests:,}", f"{options.characters:,}"): found}
    show("A batch in a gateway", ("requests", "characters each"), rows, _COLUMNS)
    chosen = {name: getattr(options, name) for name in ("requests", "characters", "topics")}
    finish("batches", options.json_file, chosen, figures(rows, _COLUMNS))
    return 0 if found["completed"] == options.requests else 1


def measure(requests: int, characters: int, topics: int) -> dict[str, float]:
    """Run one batch of chats with prompts of about `characters`, which begin with one of `topics`
    texts of half this length.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requests.jsonl"
        _write(file, requests, characters, topics)
        engine, port = free_port(), free_port()
        fake = [sys.executable, "-m", "weft_bench.fake", "--port", str(engine), "--model", _MODEL]
        serve = [sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)]
        settings = {
            **os.environ,
            "WEFT_REPLICAS": f"http://127.0.0.1:{engine}",
            "WEFT_DATA_DIR": f"{folder}/data",
        }
        url = f"http://127.0.0.1:{port}"
        with (
            running(fake, f"http://127.0.0.1:{engine}/health", Path(folder) / "engine.log"),
            running(serve, f"{url}/health", Path(folder) / "gateway.log", settings) as process,
            httpx.Client(base_url=url, timeout=120, trust_env=False) as client,
        ):
            cpu_s, memory = _processor_s(process), _memory_mib(process)
            begun = time.perf_counter()
            with file.open("rb") as content:
                form = {"file": ("requests.jsonl", content)}
                upload = client.post("/v1/files", data={"purpose": "batch"}, files=form)
            batch = _finished(client, upload.raise_for_status().json()["id"])
            wall_s = time.perf_counter() - begun
            cpu_s = _processor_s(process) - cpu_s
            return {
                "wall": wall_s,
                "rate": requests / wall_s,
                "cpu": cpu_s / requests * 1e6,
                "memory": _memory_mib(process),
                "before": memory,
                "completed": batch["request_counts"]["completed"],
            }


def _write(file: Path, requests: int, characters: int, topics: int) -> None:
    """Write the input. The requests are in random order."""
    rng = Random(7)
    half = characters // 2
    begins = [f"{rng.random()} " * (half // 20 + 1) for _ in range(topics)]
    with file.open("wb") as lines:
        for number in range(requests):
            text = rng.choice(begins)[:half] + f" {number} " + "x" * (characters - half)
            body = {
                "model": _MODEL,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": 16,
            }
            line = {"custom_id": f"row-{number}", "method": "POST", "url": _CHAT, "body": body}
            lines.write(orjson.dumps(line) + b"\n")


def _finished(client: httpx.Client, file_id: str) -> dict[str, Any]:
    """Run the batch, and return it when it has ended."""
    new = {"input_file_id": file_id, "endpoint": _CHAT, "completion_window": "24h"}
    batch: dict[str, Any] = client.post("/v1/batches", json=new).raise_for_status().json()
    deadline = time.monotonic() + _WAIT_S
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the batch is {batch['status']} after {_WAIT_S} s")
        time.sleep(0.25)
        batch = client.get(f"/v1/batches/{batch['id']}").raise_for_status().json()
    return batch


def _processor_s(process: int) -> float:
    """Return the processor time of a process, seconds."""
    # The name, in parentheses, may contain any character.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(process: int) -> float:
    """Return the largest resident memory that a process has had, MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {process} has no memory")
