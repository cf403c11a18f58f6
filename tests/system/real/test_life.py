"""Engines, calls and programs after clients disconnect or engines die."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from support.processes import descendants
from support.stack import engine_load, free_port, until
from support.waiting import RUN_S
from weft_deploy.local import plan
from weft_deploy.local.demo_model import ensure_demo_model

pytestmark = [pytest.mark.system, pytest.mark.engine]

LONG = {
    "model": "weft-demo",
    "messages": [{"role": "user", "content": "go on"}],
    "max_tokens": 7000,
    "ignore_eos": True,
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_aborts_the_request_in_the_engine(stack, stream):
    program = f"gone-{uuid4()}"
    headers = {"x-weft-program": program, "content-type": "application/json"}
    until(lambda: engine_load(stack) == 0, "the engines are not idle")
    body = json.dumps({**LONG, "stream": stream})
    connection = http.client.HTTPConnection(stack.url.removeprefix("http://"))
    connection.request("POST", "/v1/chat/completions", body, headers)
    if stream:
        connection.getresponse().read(1)
    until(lambda: engine_load(stack) >= 1, "the engine does not run the call")
    connection.close()
    until(lambda: engine_load(stack) == 0, "the engine still runs the aborted call")

    def closed():
        return httpx.get(f"{stack.url}/v1/sessions/{program}").json()["calls_in_flight"] == 0

    until(closed, "the call is still open in the table")
    session = httpx.get(f"{stack.url}/v1/sessions/{program}").json()
    assert session["service_s"] > 0, "the service of the aborted call is not counted"
    assert session["output_tokens"] < LONG["max_tokens"], "the engine finished the call"


def test_the_printed_lines_work_when_pasted(stack):
    commands = re.findall(r"^(?:curl|\S+ -c) .*$", "".join(stack.output), re.M)
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=RUN_S)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


def test_weft_up_shows_no_lines_of_its_engines(stack):
    text = "".join(stack.output)
    assert not re.search(r"\b(?:INFO|WARNING)\b", text), text


def test_weft_up_prints_the_startup_times(stack):
    assert re.search(
        r"Ready after .* \(model .* s, 2 replicas .* s, gateway .* s\)", "".join(stack.output)
    )


def test_the_policy_can_be_switched_on_every_engine(stack):
    for policy in ("fcfs", "resident"):
        answer = httpx.post(
            f"{stack.url}/weft/policy", json={"policy": policy, "reset_cache": True}
        )
        assert answer.status_code == 200
        # The state shows the new policy before the next engine step, and after later steps.
        for calls in (0, 4):
            for _ in range(calls):
                httpx.post(f"{stack.url}/v1/chat/completions", json={**LONG, "max_tokens": 2})
            state = httpx.get(f"{stack.url}/weft/state").json()["replicas"]
            assert {s["policy"] for each in state.values() for s in each["answer"]["engines"]} == {
                policy
            }
    wrong = httpx.post(f"{stack.url}/weft/policy", json={"policy": "nonsense"})
    assert wrong.status_code >= 400


def test_engines_refuse_their_endpoints_without_the_secret(stack):
    assert httpx.get(f"{stack.replicas[0]}/weft/state").status_code == 403


def test_two_hundred_concurrent_calls_are_served_and_closed(stack):
    import anyio

    async def main():
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(limits=limits, timeout=RUN_S) as client:

            async def one(number):
                answer = await client.post(
                    f"{stack.url}/v1/chat/completions",
                    json={**LONG, "max_tokens": 1 + number % 7, "stream": number % 2 == 0},
                    headers={"x-session-id": f"many-{number % 20}"},
                )
                assert answer.status_code == 200

            async with anyio.create_task_group() as group:
                for number in range(200):
                    group.start_soon(one, number)

    anyio.run(main)
    sessions = [
        httpx.delete(f"{stack.url}/v1/sessions/many-{number}").status_code for number in range(20)
    ]
    assert sessions == [200] * 20


@pytest.mark.parametrize(("process", "status"), [("its core", 1), ("the engine", 0)])
def test_the_exit_status_of_an_engine_shows_a_dead_core(tmp_path, process, status):
    port = free_port()
    start = plan.replica(plan.UpOptions(), 0, port, ensure_demo_model(), "secret", 0)
    environment = {**os.environ, **start.environment}
    with (tmp_path / "log").open("wb") as log:
        engine = subprocess.Popen(start.command, env=environment, stdout=log, stderr=log)

    def ready():
        assert engine.poll() is None, (tmp_path / "log").read_text()
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(ready, "the engine is not ready", wait_s=RUN_S)
        if process == "its core":
            (core,) = (
                pid
                for pid in descendants(engine.pid)
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"VLLM::EngineCor")
            )
            os.kill(core, signal.SIGKILL)
        else:
            engine.terminate()
        assert engine.wait(RUN_S) == status
    finally:
        engine.kill()
        engine.wait()
