"""The durations of a program and of its turns if it has an emulated engine with an empty cache to
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from weft_bench.peers.replicas import Replicas
from weft_bench.peers.turns import spans
from weft_bench.workloads.cutting import ReadyProgram

if TYPE_CHECKING:
    from weft_bench.virtual.records import Simulation


def alone_emulated(
    replicas: Replicas, ratio: float
) -> Callable[[ReadyProgram, Sequence[bytes], Sequence[float]], float]:
    """Return `alone` for emulated replicas: plays the program on the first of them in virtual time.

    ratio: the bytes per token that estimated the lengths of the prompts.
    """
    dilate = replicas.place.dilate

    def alone(program: ReadyProgram, bodies: Sequence[bytes], gaps_s: Sequence[float]) -> float:
        (record,) = _played(replicas, ratio, program, gaps_s).programs
        return record.response_s * dilate

    return alone


def turns_alone(
    replicas: Replicas, ratio: float, program: ReadyProgram, gaps_s: Sequence[float]
) -> list[float]:
    """Return the real seconds of each turn of a program alone on the first replica.

    A turn begins with its first call and ends with its last answer. gaps_s: after each call, real
    seconds.
    """
    calls = {call.number: call for call in _played(replicas, ratio, program, gaps_s).calls}
    found = []
    for first, last in spans(program):
        turn = [calls[number] for number in range(first, last + 1)]
        begun_s, end_s = min(c.arrival_s for c in turn), max(c.end_s for c in turn)
        found.append((end_s - begun_s) * replicas.place.dilate)
    return found


def _played(
    replicas: Replicas, ratio: float, program: ReadyProgram, gaps_s: Sequence[float]
) -> Simulation:
    # Imported here because this imports vLLM, which the bench does not need for real engines.
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.world import Setup, simulate

    engine = EngineSettings("fcfs", tags=False)
    setup = Setup(replicas.shapes[:1], engine, bytes_per_token=ratio)
    calls = tuple(
        replace(ready, call=with_fields(ready.call, gap_s=gap_s / replicas.place.dilate))
        for ready, gap_s in zip(program.calls, gaps_s, strict=True)
    )
    return simulate([replace(program, calls=calls)], [0.0], setup)
