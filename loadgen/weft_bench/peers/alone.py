"""The duration of a program that has an emulated engine with an empty cache to itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec.structs import replace as with_fields

from weft_bench.peers.replicas import Replicas
from weft_bench.workloads.cutting import ReadyProgram


def alone_emulated(
    replicas: Replicas, ratio: float
) -> Callable[[ReadyProgram, Sequence[bytes], Sequence[float]], float]:
    """Return `alone` for emulated replicas: plays the program in virtual time.

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
