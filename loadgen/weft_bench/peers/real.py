"""Measurements on running engines: bytes per token, and programs that run alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from weft_bench.drive.client import Client
from weft_bench.drive.gateway import count_tokens
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

    Raises ValueError if the engine rejects the request.
    """

    async def ratio() -> float:
        async with Client(replicas.urls[0]) as client:
            count = partial(count_tokens, client, replicas.place.model)
            return await bytes_per_token(messages_of(program.calls[-1]), count)

    return asyncio.run(ratio())


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
