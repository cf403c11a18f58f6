"""The duration of a program that has an engine with an empty cache to itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

from msgspec.structs import replace as with_fields

from weft_bench.peers.drive import Script, drive
from weft_bench.peers.fronts import Front
from weft_bench.peers.replicas import Replicas
from weft_bench.stack.proxies import OURS
from weft_bench.workloads.cutting import ReadyProgram
from weft_bench.workloads.schema import TraceError

# Returns the real seconds of a program. Its other arguments are the bodies of its calls, and the
# gaps after them in real seconds.
Alone = Callable[[ReadyProgram, Sequence[bytes], Sequence[float]], float]

# No front: the client calls a replica directly.
_DIRECT: Final = Front("direct", OURS, keyed=False)


def alone_emulated(replicas: Replicas, ratio: float) -> Alone:
    """Return a function that plays a program in virtual time.

    ratio: the bytes per token that estimated the lengths of the prompts.
    """
    # Imported here because this imports vLLM, which the bench does not need for real engines.
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.world import Setup, simulate

    assert replicas.shape is not None
    engine = EngineSettings("fcfs", tags=False)
    setup = Setup((replicas.shape,), engine, bytes_per_token=ratio)
    dilate = replicas.place.dilate

    def alone(program: ReadyProgram, bodies: Sequence[bytes], gaps_s: Sequence[float]) -> float:
        calls = tuple(
            replace(ready, call=with_fields(ready.call, gap_s=gap_s / dilate))
            for ready, gap_s in zip(program.calls, gaps_s, strict=True)
        )
        (record,) = simulate([replace(program, calls=calls)], [0.0], setup).programs
        return record.response_s * dilate

    return alone


def alone_real(replicas: Replicas) -> Alone:
    """Return a function that plays a program on a replica and measures it."""

    def alone(program: ReadyProgram, bodies: Sequence[bytes], gaps_s: Sequence[float]) -> float:
        replicas.reset("fcfs")
        blocks: list[Sequence[int]] = [()] * len(bodies)
        script = Script(program, bodies, blocks, gaps_s, 0.0, 0.0, False)
        run = uuid4().hex[:8]
        played = asyncio.run(drive(replicas.urls[0], _DIRECT, [script], run, lambda: None))
        failed = [call.error for call in played.calls if call.error]
        if failed:
            raise TraceError(f"{program.id} fails with an engine to itself: {failed[0]}")
        return played.duration_s

    return alone
