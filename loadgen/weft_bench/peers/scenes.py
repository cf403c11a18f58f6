"""Recorded workloads with limits, and a slice of programs with slow tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from weft_bench.peers.alone import alone_emulated
from weft_bench.peers.contents import as_chat, blocks_of, body_of
from weft_bench.peers.drive import Script
from weft_bench.peers.real import alone_real, ratio_of
from weft_bench.peers.replicas import Replicas
from weft_bench.workloads.cutting import ReadyProgram, fitting
from weft_bench.workloads.schema import TraceError, TraceProgram
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_bench.workloads.traces.files import read_trace


@dataclass(frozen=True, slots=True)
class Scene:
    """One workload.

    folder: in the folder of data sets. programs: number of played programs. rate: of their
    arrivals, per second of the engines' clock. calls: limit of a program's calls; the first ones
    are played. longest_gap_s: limit of its gaps, engine seconds.
    """

    name: str
    folder: str
    programs: int
    rate: float
    calls: int
    longest_gap_s: float


@dataclass(frozen=True, slots=True)
class LongGaps:
    """Slow tools: multiplies the gaps of a share of the programs, up to `longest_s`, engine
    seconds.
    """

    share: float
    factor: float
    longest_s: float

    def of(self, programs: int, seed: int) -> frozenset[int]:
        """Return the numbers of the selected programs."""
        count = round(self.share * programs)
        return frozenset(stream(seed, "long gaps").sample(range(programs), count))


# At these rates sticky routing just keeps replicas of four slots and 3,000 blocks busy.
EMULATED_SCENES: Final = (
    Scene("coding_sessions", "coding_sessions", 36, 0.6, 8, 3.0),
    Scene("tau_airline", "tau_airline", 80, 3.0, 8, 3.0),
    Scene("tree_of_thoughts", "tree_of_thoughts", 30, 0.28, 50, 3.0),
)
REAL_SCENES: Final = (
    Scene("coding_sessions", "coding_sessions", 24, 4.0, 4, 1.0),
    Scene("tau_airline", "tau_airline", 24, 8.0, 4, 1.0),
    Scene("tree_of_thoughts", "tree_of_thoughts", 16, 4.0, 30, 1.0),
)
QUICK_SCENES: Final = (Scene("tau_airline", "tau_airline", 12, 4.0, 3, 1.0),)


def scripts(
    scene: Scene,
    data: Path,
    seed: int,
    replicas: Replicas,
    long_gaps: LongGaps,
) -> list[Script]:
    """Return the scene's programs as they are played, the same for every front.

    data: the folder of data sets. Raises TraceError.
    """
    name, programs = read_trace(data / scene.folder, seed, replicas.context)
    first = next(programs)
    programs = chain([first], programs)
    ratio = ratio_of(first, replicas)
    alone = alone_real(replicas) if replicas.shape is None else alone_emulated(replicas, ratio)
    ready = list(islice(_fitting(programs, scene, replicas.context, ratio), scene.programs))
    if len(ready) < scene.programs:
        raise TraceError(f"{name} has {len(ready)} programs that fit, not {scene.programs}")
    arrivals = poisson_arrivals(stream(seed, "arrivals"), scene.rate, len(ready))
    slow = long_gaps.of(len(ready), seed)
    dilate = replicas.place.dilate
    found = []
    for number, (program, arrival) in enumerate(zip(ready, arrivals, strict=True)):
        gaps = [min(scene.longest_gap_s, c.call.gap_s) for c in program.calls]
        # A program without gaps cannot have long ones.
        is_slow = number in slow and any(gaps[:-1])
        if is_slow:
            gaps = [min(long_gaps.longest_s, long_gaps.factor * gap) for gap in gaps]
        gaps = [gap * dilate for gap in gaps]
        model = replicas.place.model
        bodies = [body_of(c.call, c.call.messages, model, c.max_tokens) for c in program.calls]
        found.append(
            Script(
                program,
                bodies,
                [blocks_of(body, replicas.block_tokens) for body in bodies],
                gaps,
                arrival * dilate,
                alone(program, bodies, gaps),
                is_slow,
            )
        )
    return found


def _fitting(
    programs: Iterator[TraceProgram], scene: Scene, context: int, ratio: float
) -> Iterator[ReadyProgram]:
    chats = (
        replace(program, calls=tuple(map(as_chat, program.calls[: scene.calls])))
        for program in programs
    )
    return fitting(chats, context, ratio)
