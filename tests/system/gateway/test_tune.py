"""`weft tune` as a command, beside a gateway process whose engines have different speeds."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from support.waiting import DEADLINE_S, RUN_S
from weft_bench.stack.processes import free_port
from weft_engine.wire import REPORT_HEADER, CallReport

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.anyio]

# The fast one alone cannot serve the calls of the test in time.
FAST, SLOW = 1e-5, 1.2e-5


def answering(token_s: float) -> dict[str, Any]:
    """Options of an engine with this time per token."""
    costs = {
        "step_s": 0.001, "weights_s": 100 * token_s, "prefill_token_s": token_s,
        "decode_sequence_s": token_s, "context_token_s": 0.0, "samples": 99, "relative_error": 0.02,
    }  # fmt: skip
    limits = {"slots": 4, "step_tokens": 2048, "kv_blocks": 1000, "block_tokens": 16}
    state = {"policy": "fcfs", "options": {}, "costs": costs, "kv": None, **limits}

    async def script(wire: Any, request: Any) -> None:
        report = CallReport(
            request.headers["x-weft-call"], prompt_tokens=1000, output_tokens=50,
            service_s=1050 * token_s, finished=True,
        )  # fmt: skip
        await asyncio.sleep(0.02)
        await wire.plain({}, headers={REPORT_HEADER: report.to_json()})

    return {"script": script, "canned": {"/weft/state": {"weft": {}, "engines": [state]}}}


@contextlib.asynccontextmanager
async def serving(*urls: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway process with alpha 1: it uses the fast engine only."""
    port = free_port()
    replicas = [part for n, url in enumerate(urls) for part in ("--replica", f"r{n}={url}")]
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port),
        "--balancer", "work", *replicas,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=RUN_S, trust_env=False) as client:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        if (await client.get("/health")).status_code == 200:
                            break
                    await asyncio.sleep(0.05)
            assert (
                await client.post("/weft/policy", json={"options": {"alpha": 1}})
            ).status_code == 200
            yield client
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.terminate()
        await running.wait()


async def test_the_command_changes_alpha_by_a_replay_of_the_journal(engine: Any) -> None:
    async with (
        engine(**answering(FAST)) as fast,
        engine(**answering(SLOW)) as slow,
        serving(fast.url, slow.url) as client,
    ):
        for number in range(60):
            body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
            headers = {"x-weft-program": f"p{number}"}
            answer = await client.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200
        assert (await client.get("/weft/state")).json()["balancer"] == {"name": "work", "alpha": 1}
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "weft_bench.tune.command", "--gateway", str(client.base_url),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        shown, _ = await command.communicate()
        assert command.returncode == 0
        state = (await client.get("/weft/state")).json()
        alpha = state["balancer"]["alpha"]
        assert alpha < 1
        assert f"alpha is {alpha:g}; P95 of 60 programs, replayed: " in shown.decode()
