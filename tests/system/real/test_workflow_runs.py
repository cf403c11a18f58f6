"""`weft run` against real vLLM: one program, and the same answers as calls one after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from weft_run import examples as workflows
from weft_run.language.requests import LlmRequest
from weft_run.language.spec import load
from weft_run.plan.evaluate import Task, evaluate

pytestmark = [pytest.mark.system, pytest.mark.engine]


@pytest.mark.parametrize("name", ["map_reduce", "debate"])
def test_a_run_has_the_answers_of_single_calls(stack, tmp_path: Path, name: str) -> None:
    workflows.copy(tmp_path)
    command = [sys.executable, "-m", "weft_gateway.cli", "run", f"{name}.yaml"]
    command += ["--input", f"{name}.jsonl", "--output", "out.jsonl", "--gateway", stack.url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    def ask(task: Task) -> str:
        request = task.request
        assert isinstance(request, LlmRequest)
        messages = [{"role": role, "content": text} for role, text in request.messages]
        body = {**request.parameters, "model": "weft-demo", "messages": messages}
        answer = httpx.post(f"{stack.url}/v1/chat/completions", json=body, timeout=60).json()
        text: str = answer["choices"][0]["message"]["content"]
        return text

    workflow = load((tmp_path / f"{name}.yaml").read_text())
    inputs = (tmp_path / f"{name}.jsonl").read_text().splitlines()
    expected = [evaluate(workflow, json.loads(line), ask) for line in inputs]
    assert [row["error"] for row in found] == [None] * len(expected)
    for row, naive in zip(found, expected, strict=True):
        assert {name: row[name] for name in naive.outputs} == dict(naive.outputs)
