"""The sessions of a curve, and how many of them fit the cache at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from math import ceil, inf
from pathlib import Path
from typing import Final

from msgspec.structs import replace as with_fields

from weft_bench.workloads.cutting import ReadyProgram, fitting
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.traces.files import read_trace

# Of messages, whose tokens are estimated.
BYTES_PER_TOKEN: Final = 4.0
# Sessions whose largest contexts tell how many fit, and the seed that draws them.
_MEASURED: Final = 100
_MEASURED_SEED: Final = 0
# A point counts at least this many sessions, if a place plays more than one.
_FEWEST: Final = 12
# Sessions beyond the counted ones that keep the load until the last of these has ended, a place.
_MORE: Final = 4
# Blocks of recorded sessions have this size, and so have those of the engines.
BLOCK_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Scene:
    """Sessions and engines of a curve.

    workload: a recorded workload in the folder `data`, or a generated one. preset: an engine, of
    which there are `replicas`. calls: first calls of each session, 0 for all. gap_s: longest gap
    before a call. per_place: sessions that count, over those at once. chats_s: seconds between
    single chats beside the sessions, 0 for none. slots, kv_blocks: of an engine, 0 for its own.
    """

    workload: str = "coding_sessions"
    preset: str = "8b-h100"
    replicas: int = 1
    calls: int = 24
    gap_s: float = 10.0
    per_place: float = 2.0
    chats_s: float = 0.0
    slots: int = 0
    kv_blocks: int = 0
    data: str = ""

    def sessions(
        self, seed: int, count: int, context: int, least: int = 1
    ) -> Sequence[ReadyProgram]:
        """Return up to `count` sessions in an order that the seed draws, cut to a context in
        tokens. Lengths stay undivided. Raises TraceError if fewer than `least` fit or the data are
        missing.
        """
        name = self.workload
        if name not in WORKLOADS:
            if not self.data:
                raise TraceError(f"--data must be the folder of the recorded workload {name}")
            name = str(Path(self.data) / name)
        found = _sessions(name, seed, count, context, self.calls, self.gap_s)
        if len(found) < least:
            raise TraceError(
                f"{self.workload} has {len(found)} sessions that fit {context} tokens, and this "
                f"point needs {least}: choose fewer --times"
            )
        return found

    def fit(self, tokens: int, context: int) -> int:
        """Return how many sessions fit the caches of all engines at once, at least 1: their tokens
        over the mean of the sessions' largest contexts, rounded. tokens: of one cache. context:
        longest call.
        """
        found = self.sessions(_MEASURED_SEED, _MEASURED, min(context, tokens))
        largest = sum(largest_context(one) for one in found) / len(found)
        return max(1, round(self.replicas * tokens / largest))

    def point(self, times: float, fits: int) -> Point:
        """Return the point with this many times the sessions that fit."""
        at_once = max(1, ceil(times * fits - 0.5))
        counted = ceil(self.per_place * at_once)
        return Point(at_once, max(_FEWEST, counted) if self.per_place > 1 else counted)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a curve. at_once: sessions at once. counted: the first ones, whose completion the
    figures count, the same for all systems.
    """

    at_once: int
    counted: int

    @property
    def least(self) -> int:
        """The sessions without which it cannot be played."""
        return max(self.counted, self.at_once)

    @property
    def available(self) -> int:
        """The sessions that a play may begin."""
        return self.counted + _MORE * self.at_once


def largest_context(program: ReadyProgram) -> int:
    """Return the tokens of a session's largest prompt with its answer."""
    return max(one.prompt_tokens + one.max_tokens for one in program.calls)


@lru_cache(maxsize=8)
def _sessions(
    name: str, seed: int, count: int, context: int, calls: int, gap_s: float
) -> Sequence[ReadyProgram]:
    if name in WORKLOADS:
        # Some programs do not fit and are left out.
        programs = WORKLOADS[name].generate(seed, 2 * count)
    else:
        _, programs = read_trace(Path(name), seed)
    return [
        _cut(one, calls, gap_s)
        for one in islice(fitting(programs, context, BYTES_PER_TOKEN), count)
    ]


def _cut(program: ReadyProgram, calls: int, gap_s: float) -> ReadyProgram:
    kept = tuple(
        replace(one, call=with_fields(one.call, gap_s=min(one.call.gap_s, gap_s or inf)))
        for one in program.calls[: calls or None]
    )
    return replace(program, calls=kept)
