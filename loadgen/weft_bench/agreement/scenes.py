"""The cases of `weft bench fit --agreement`: programs that separate orders, and recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from weft_engine.emulated.engines import find
from weft_engine.emulated.presets import EngineShape

from weft_bench.agreement.recorded import sessions
from weft_bench.workloads.cutting import ReadyProgram, fit
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import poisson_arrivals, stream

_CONTEXT: Final = 4096
_SYSTEM: Final = Part("system", 256, "system")
# Every fifth program sends this many calls in parallel, this many times. The others are short
# chains.
_EVERY: Final = 5
_WIDE: Final = 8
_LEVELS: Final = 3
_LONGEST_CHAIN: Final = 3
_LONG_ANSWER: Final = 40
_SHORT_ANSWER: Final = 16
_GAP_S: Final = 0.05
_LONGEST_GAP_S: Final = 0.2
_TURNS: Final = 8
_PAUSE_S: Final = 0.3
_LONGEST_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """One engine and one kind of programs.

    slots, kv_blocks, swap_gib: of the engine; 0 slots or blocks are those of the preset. make:
    returns the program with a seed and a number; None for recorded sessions. programs: number of
    programs. rate: their arrivals per engine second. goal: of the ratio of the means, the greatest
    difference to 1.
    """

    name: str
    slots: int
    kv_blocks: int
    make: Callable[[int, int], TraceProgram] | None
    programs: int
    rate: float
    swap_gib: float = 0.0
    goal: float = 0.10

    def shape(self, preset: str) -> EngineShape:
        """Return the engine with the costs of a preset."""
        shape = find(preset)
        slots, kv_blocks = self.slots or shape.slots, self.kv_blocks or shape.kv_blocks
        return replace(shape, slots=slots, kv_blocks=kv_blocks)


@dataclass(frozen=True, slots=True)
class Scene:
    """Programs, and their arrivals in engine seconds."""

    programs: Sequence[ReadyProgram]
    arrivals: Sequence[float]


def scene(case: Case, seed: int, data: Path = Path(), calls: int = 0) -> Scene:
    """Return the programs of a case. Prompts are parts and so have exact lengths.

    data, calls: for recorded sessions, see `recorded.sessions`. Raises TraceError for them.
    """
    if case.make is None:
        programs = sessions(data, seed, case.programs, calls)
    else:
        made = [fit(case.make(seed, number), _CONTEXT, 1.0) for number in range(case.programs)]
        programs = [program for program in made if program is not None]
    draw = stream(seed, "agreement/arrivals")
    return Scene(programs, poisson_arrivals(draw, case.rate, len(programs)))


def branching(seed: int, number: int) -> TraceProgram:
    """Return a short chain of calls, or several levels of parallel calls.

    Parallel calls fill an engine that orders by call, and the calls of short programs wait behind
    them. This separates such an engine from one that orders by program.
    """
    name = f"branching-{seed}-{number}"
    draw = stream(seed, name)
    wide = number % _EVERY == 1
    width, answer = (_WIDE, _LONG_ANSWER) if wide else (1, _SHORT_ANSWER)
    parts: tuple[Part, ...] = (_SYSTEM,)
    calls: list[TraceCall] = []
    last: tuple[int, ...] = ()
    for level in range(_LEVELS if wide else 1 + draw.randrange(_LONGEST_CHAIN)):
        side = []
        for place in range(width):
            asked = 16 + min(160, int(draw.expovariate(1 / 48)))
            side.append(
                TraceCall(
                    parts=(*parts, Part(f"{name}/{level}.{place}/asked", asked, "tool")),
                    output_tokens=_answer(draw, answer),
                    gap_s=min(_LONGEST_GAP_S, draw.expovariate(1 / _GAP_S)),
                    after=last,
                )
            )
        last = tuple(range(len(calls), len(calls) + width))
        calls += side
        # The next prompt contains the recorded answer, because the engine writes another one.
        recorded = Part(f"{name}/{level}/recorded", side[-1].output_tokens, "assistant")
        parts = (*side[-1].parts, recorded)
    return TraceProgram(name, tuple(calls))


def dialogue(seed: int, number: int) -> TraceProgram:
    """Return a dialogue with pauses, whose context should stay in the prefix cache."""
    name = f"dialogue-{seed}-{number}"
    draw = stream(seed, name)
    task = Part(f"{name}/task", 512 + draw.randrange(1024), "user")
    parts: tuple[Part, ...] = (_SYSTEM, task)
    calls = []
    for turn in range(2 + draw.randrange(_TURNS - 1)):
        answer = _answer(draw, _SHORT_ANSWER)
        gap_s = min(_LONGEST_PAUSE_S, draw.expovariate(1 / _PAUSE_S))
        calls.append(TraceCall(parts=parts, output_tokens=answer, gap_s=gap_s))
        result = 64 + min(300, int(draw.expovariate(1 / 100)))
        parts += (
            Part(f"{name}/{turn}/recorded", answer, "assistant"),
            Part(f"{name}/{turn}/result", result, "tool"),
        )
    return TraceProgram(name, tuple(calls))


def _answer(draw: Random, mean: int) -> int:
    return 8 + min(4 * mean, int(draw.expovariate(1 / mean)))


CASES: Final = (
    Case("plentiful", 3, 4000, branching, 7, 4.0),
    Case("scarce", 8, 72, branching, 10, 4.0),
    Case("swap", 8, 72, branching, 10, 4.0, swap_gib=4.0),
    Case("warm", 4, 500, dialogue, 8, 3.0),
    Case("recorded", 0, 0, None, 12, 2.0, goal=0.05),
)
# For dilations: no preemption, no eviction and no parallel calls, so that random delays of calls
# change little.
CALM: Final = Case("calm", 4, 4000, dialogue, 8, 3.0)
