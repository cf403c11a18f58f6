"""Synthetic workloads, and the dialogue that most of them use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import stream


@dataclass(frozen=True, slots=True)
class Workload:
    """A generated workload.

    program: returns the program of a (seed, number), independent of all other numbers. source:
    publication of its statistics. published: those statistics, under their names in
    `weft_bench.workloads.statistics`. extra: computes statistics that only this workload has.
    """

    name: str
    source: str
    program: Callable[[int, int], TraceProgram]
    published: Mapping[str, float] = field(default_factory=dict)
    extra: Callable[[Iterable[TraceProgram]], Mapping[str, float]] | None = None

    def generate(self, seed: int, count: int) -> Iterator[TraceProgram]:
        """Yield `count` programs. A larger count does not change them."""
        return (self.program(seed, number) for number in range(count))


def arriving(programs: Iterable[TraceProgram], times: Iterable[float]) -> Iterator[TraceProgram]:
    """Yield the programs with their arrivals, in seconds from the start."""
    for program, time in zip(programs, times, strict=True):
        yield replace(program, arrival_s=time)


def purposes(seed: int, program: str) -> Callable[[str], Random]:
    """Return the random streams of one program by their purpose, each from its beginning."""
    return lambda purpose: stream(seed, f"{program}/{purpose}")


@dataclass(slots=True)
class Dialogue:
    """A program's growing context: each prompt is the previous one, its answer, and new text.

    id: unique id of the program. head: parts that the first prompt begins with.
    """

    id: str
    head: tuple[Part, ...]
    _calls: list[TraceCall] = field(default_factory=list)

    def say(self, kind: str, *tokens: int) -> None:
        """Append the user's text or the tools' results."""
        place = len(self._calls)
        self.head += tuple(
            Part(f"{self.id}/{kind}/{place}.{number}", length, kind)
            for number, length in enumerate(tokens)
        )

    def call(self, tokens: int, gap_s: float = 0.0, tool_s: tuple[float, ...] = ()) -> None:
        """Add a call with the whole context.

        Its answer has `tokens` tokens and joins the context.
        """
        name = f"{self.id}/answer/{len(self._calls)}"
        self._calls.append(
            TraceCall(
                parts=self.head, output_tokens=tokens, gap_s=gap_s, answer=name, tool_s=tool_s
            )
        )
        self.head += (Part(name, tokens, "assistant"),)

    def program(self) -> TraceProgram:
        """Return the program of all calls so far."""
        return TraceProgram(self.id, tuple(self._calls))
