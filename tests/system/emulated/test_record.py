"""A record of an emulated stack: what it says, that it has no text, and advice from it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from support.emulated import MODEL
from support.stack import Stack
from typer.testing import CliRunner
from weft_bench.tune import advise
from weft_bench.tune.journals import read
from weft_bench.tune.record import record

pytestmark = [pytest.mark.system, pytest.mark.engine]

SECRETS = ("lighthouse", "violin", "umbrella")


def serve(stack: Stack, session: str, turns: int) -> None:
    """Serve a session whose conversation grows."""
    messages = [{"role": "system", "content": f"You are {session}. " + "umbrella " * 60}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{turn} " + "lighthouse violin " * 20})
        body = {"model": MODEL, "max_tokens": 8, "messages": messages}
        answer = httpx.post(
            f"{stack.url}/v1/chat/completions", json=body,
            headers={"x-weft-program": f"violin-{session}"}, timeout=60,
        )  # fmt: skip
        assert answer.status_code == 200
        messages.append({"role": "assistant", "content": "umbrella"})


def test_a_stack_is_recorded_and_played_with_other_engines(stack: Stack, tmp_path: Path) -> None:
    file, trace = tmp_path / "record.jsonl", tmp_path / "trace.jsonl"
    for session in ("one", "two"):
        serve(stack, session, 3)
    done = CliRunner().invoke(record, [str(file), "--gateway", stack.url])
    assert done.exit_code == 0, done.output
    # The stack has served other tests.
    served = read(file)[-6:]
    raw = b"\n".join(file.read_bytes().splitlines()[-6:])
    for secret in (*SECRETS, "You are"):
        assert secret.encode() not in raw
    assert len({line.program for line in served}) == 2
    for before, line in pairwise(served):
        if line.program != before.program:
            continue
        assert line.continues == before.call
        assert line.common_tokens == before.prompt_tokens
        # What the engine found is what the record says, in whole blocks.
        assert abs((line.cached_tokens or 0) - line.common_tokens) <= 16
    file.write_bytes(raw + b"\n")
    line = [str(trace), "--convert", str(file), "--format", "mooncake"]
    assert CliRunner().invoke(record, line).exit_code == 0
    rows = [json.loads(row) for row in trace.read_text().splitlines()]
    assert [row["input_length"] for row in rows] == [line.prompt_tokens for line in served]
    line = [str(file), "--preset", "8b-h200", "--orders", "resident,fcfs", "--replicas", "1"]
    found = CliRunner().invoke(advise.advise, line)
    assert found.exit_code == 0, found.output
    assert "Recorded: 2 programs with 6 calls, mean " in found.output
    assert "| resident " in found.output
    assert "| fcfs " in found.output
