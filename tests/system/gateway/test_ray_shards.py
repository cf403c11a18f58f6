"""The parts of a run on a local Ray cluster with two workers, two gateways and one Redis."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.batches import chat, served
from support.redis_server import RedisServer
from support.stack import free_port

pytestmark = [pytest.mark.system, pytest.mark.anyio]

GUIDE = Path(__file__).parents[3] / "docs/guides/batch-workflows.md"
DEADLINE_S = 480
WORKFLOW = """
weft: 1
name: answers
model: tiny
inputs: {doc: str, question: str}
ops:
  answer: {llm: {system: "{{ doc }}", user: "{{ question }}", max_tokens: 16}}
  fixed: {sql: {query: SELECT 1 AS one, connection: notes}}
outputs: {answer: answer, fixed: fixed}
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a folder with a short path, because Ray has its sockets there."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def command(*arguments: str, **environment: str) -> str:
    """Run a Python module to its end. Returns its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *arguments),
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(DEADLINE_S):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_actors_run_the_parts(
    redis: RedisServer, engine: Any, tmp_path: Path, short: Path
) -> None:
    workflow, rows = tmp_path / "wf.yaml", tmp_path / "in.jsonl"
    workflow.write_text(WORKFLOW)
    documents = [f"doc {number % 6}" for number in range(30)]
    questions = [{"doc": doc, "question": f"q{n}"} for n, doc in enumerate(documents)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in questions))
    (tmp_path / "notes.db").touch()
    ports = (free_port(), free_port())
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    shared = {"WEFT_REDIS_URL": redis.url}
    whole, merged = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    async with (
        engine(script=chat) as stub,
        served(ports[0], stub.url, tmp_path / "data", **shared),
        served(ports[1], stub.url, tmp_path / "data", **shared),
    ):
        await command(
            *("weft_gateway.cli", "run", str(workflow), "--input", str(rows)),
            *("--output", str(whole), "--gateway", urls[0]),
            *("--connection", f"notes={tmp_path}/notes.db"),
        )
        before = len(stub.requests)
        await command(
            *("weft.examples.ray_shards", str(workflow), "--input", str(rows)),
            *("--output", str(merged), "--parts", "2", "--gateway", urls[0], "--gateway", urls[1]),
            *("--connection", f"notes={tmp_path}/notes.db", "--allow-host", "example.org"),
            TMPDIR=str(short),
            RAY_TMPDIR=str(short),
            RAY_USAGE_STATS_ENABLED="0",
            RAY_memory_monitor_refresh_ms="0",
            PYTHONPATH=os.pathsep.join(sys.path),
        )
    assert merged.read_bytes() == whole.read_bytes()
    assert len(whole.read_text().splitlines()) == 30
    # Each of the two programs has its own documents.
    seen: dict[str, set[str]] = {}
    for request in stub.requests[before:]:
        program = request.json["vllm_xargs"]["weft_program"]
        seen.setdefault(program, set()).add(request.json["messages"][0]["content"])
    assert len(stub.requests) - before == 30
    assert sorted(map(len, seen.values())) == [3, 3]
    assert "python -m weft.examples.ray_shards" in GUIDE.read_text()
