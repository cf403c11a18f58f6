"""`weft run` against real vLLM, through a gateway and without one: the same answers as calls one
after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from support.evaluate import Task, evaluate
from support.stack import free_port, until
from support.waiting import RUN_S
from weft_deploy.local import demo_model
from weft_run import examples as workflows
from weft_run.language.requests import LlmRequest
from weft_run.language.spec import load

pytestmark = [pytest.mark.system, pytest.mark.engine]


@pytest.fixture
def stock() -> Iterator[str]:
    """Yield the URL of a vLLM server without Weft's plugin."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen(
        [sys.executable, "-m", "weft_engine.launch", "--model", demo_model.ensure_demo_model(),
         "--served-model-name", "weft-demo", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: _answers(url) or process.poll() is not None, "vLLM serves", RUN_S)
        yield url
    finally:
        process.terminate()
        process.wait(RUN_S)


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/health").status_code == 200
    return False


@pytest.mark.parametrize("name", ["map_reduce", "debate"])
def test_a_run_has_the_answers_of_single_calls(stack, tmp_path: Path, name: str) -> None:
    check(stack.url, tmp_path, name)


def test_a_run_needs_no_gateway(stock: str, tmp_path: Path) -> None:
    check(stock, tmp_path, "map_reduce")


def check(url: str, tmp_path: Path, name: str) -> None:
    """Compare the rows of a run at a server with those of single calls to it."""
    workflows.copy(tmp_path)
    command = [sys.executable, "-m", "weft_gateway.cli", "run", f"{name}.yaml"]
    command += ["--input", f"{name}.jsonl", "--output", "out.jsonl", "--gateway", url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    def ask(task: Task) -> str:
        request = task.request
        assert isinstance(request, LlmRequest)
        messages = [{"role": role, "content": text} for role, text in request.messages]
        body = {**request.parameters, "model": "weft-demo", "messages": messages}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=RUN_S).json()
        text: str = answer["choices"][0]["message"]["content"]
        return text

    workflow = load((tmp_path / f"{name}.yaml").read_text())
    inputs = (tmp_path / f"{name}.jsonl").read_text().splitlines()
    expected = [evaluate(workflow, json.loads(line), ask) for line in inputs]
    assert [row["error"] for row in found] == [None] * len(expected)
    for row, naive in zip(found, expected, strict=True):
        assert {name: row[name] for name in naive.outputs} == dict(naive.outputs)
