"""Measurements that only real engines need: bytes per token, and programs that run alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import uuid4

from weft_bench.drive.client import Client
from weft_bench.peers.contents import messages_of
from weft_bench.peers.drive import Script, drive
from weft_bench.peers.fronts import Front
from weft_bench.peers.replicas import Replicas
from weft_bench.stack.proxies import OURS
from weft_bench.workloads.cutting import ReadyProgram, bytes_per_token
from weft_bench.workloads.schema import TraceError, TraceProgram

# No front: the client calls a replica directly.
_DIRECT: Final = Front("direct", OURS, keyed=False)


def ratio_of(program: TraceProgram, replicas: Replicas) -> float:
    """Return the bytes per token of this program's messages, by the engine's count.

    Raises TraceError if the engine rejects the request.
    """
    return asyncio.run(bytes_per_token(messages_of(program.calls[-1]), partial(_count, replicas)))


def alone_real(
    replicas: Replicas,
) -> Callable[[ReadyProgram, Sequence[bytes], Sequence[float]], float]:
    """Return `lone` for real replicas: plays the program alone, with an empty cache."""

    def lone(program: ReadyProgram, bodies: Sequence[bytes], gaps_s: Sequence[float]) -> float:
        replicas.reset("fcfs")
        blocks: list[Sequence[int]] = [()] * len(bodies)
        script = Script(program, bodies, blocks, gaps_s, 0.0, 0.0, False)
        run = uuid4().hex[:8]
        played = asyncio.run(drive(replicas.urls[0], _DIRECT, [script], run, lambda: None))
        failed = [call.error for call in played.calls if call.error]
        if failed:
            raise TraceError(f"{program.id} fails with an engine to itself: {failed[0]}")
        return played.duration_s

    return lone


async def _count(replicas: Replicas, messages: Sequence[Any]) -> float:
    client = Client(replicas.urls[0])
    body = {"model": replicas.place.model, "messages": messages, "max_tokens": 1}
    try:
        status, answer = await client.post("/v1/chat/completions", json.dumps(body).encode(), {})
    finally:
        client.close()
    if status != 200:
        raise TraceError(f"the engine rejected a probe: {answer[:200].decode(errors='replace')}")
    return float(json.loads(answer)["usage"]["prompt_tokens"])
