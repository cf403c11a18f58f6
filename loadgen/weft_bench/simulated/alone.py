"""Computes the duration of a program that has a simulated replica to itself.

Pure, in virtual time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from weft_engine.wire import CallContext

from weft_bench.costs.presets import EngineShape
from weft_bench.simulated import tokens
from weft_bench.simulated.batcher import Batcher
from weft_bench.simulated.engine import Work


@dataclass(frozen=True, slots=True)
class Lone:
    """One call of a program.

    prompt: whole tokens of four bytes. needs: numbers of the calls that must end before this one
    starts. gap_s: seconds between this call's end and the start of the calls that need it.
    """

    prompt: bytes
    output_tokens: int
    needs: tuple[int, ...]
    gap_s: float


def alone(calls: Sequence[Lone], shape: EngineShape) -> float:
    """Return the seconds from the program's arrival to its last answer, gaps included.

    The engine's cache is empty at the start. Raises ValueError for a call that does not fit the
    engine.
    """
    engine = Batcher(shape, "fcfs", {})
    left = [len(call.needs) for call in calls]
    due = [0.0] * len(calls)
    coming = [(0.0, number) for number, count in enumerate(left) if not count]
    now = last = 0.0
    while True:
        while coming and coming[0][0] <= now:
            _add(engine, calls, heapq.heappop(coming)[1], now)
        ends = engine.start(now, coming[0][0] if coming else math.inf)
        if ends is None:
            if not coming:
                return last
            now = coming[0][0]
            continue
        while coming and coming[0][0] < ends:
            at, number = heapq.heappop(coming)
            _add(engine, calls, number, at)
        now = ends
        for report in engine.finish(now).reports:
            done, last = int(report.call), now
            for number, call in enumerate(calls):
                if done in call.needs:
                    left[number] -= 1
                    due[number] = max(due[number], now + calls[done].gap_s)
                    if not left[number]:
                        heapq.heappush(coming, (due[number], number))


def _add(engine: Batcher, calls: Sequence[Lone], number: int, now: float) -> None:
    call = calls[number]
    length = len(call.prompt) // tokens.TOKEN_BYTES
    if not engine.fits(length + call.output_tokens):
        raise ValueError(f"call {number} has {length} tokens and never fits")
    text = call.prompt + tokens.words(call.output_tokens).encode()
    engine.add(Work(CallContext(str(number), "p"), text, length, call.output_tokens), now)
