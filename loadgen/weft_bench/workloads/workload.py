"""What a synthetic workload is, and the dialogue that most of them are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import stream


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload that is made, not recorded.

    program: (seed, number) to a program; what one number gives depends on nothing else. source:
    where its statistics were published. published: those statistics, by their names in
    `weft_bench.workloads.statistics`. extra: statistics that only this workload has.
    """

    name: str
    source: str
    program: Callable[[int, int], TraceProgram]
    published: Mapping[str, float] = field(default_factory=dict)
    extra: Callable[[Iterable[TraceProgram]], Mapping[str, float]] | None = None

    def generate(self, seed: int, count: int) -> Iterator[TraceProgram]:
        """`count` programs, made as they are asked for. More programs change none."""
        return (self.program(seed, number) for number in range(count))


def arriving(programs: Iterable[TraceProgram], times: Iterable[float]) -> Iterator[TraceProgram]:
    """The programs with their arrivals, seconds from the start."""
    for program, time in zip(programs, times, strict=True):
        yield replace(program, arrival_s=time)


@dataclass(frozen=True, slots=True)
class Purposes:
    """The random streams of one program, one for each purpose: drawing more for one of them, or
    from another distribution, changes nothing that is drawn for the others."""

    seed: int
    program: str

    def of(self, purpose: str) -> Random:
        """The stream of a purpose, from its beginning."""
        return stream(self.seed, f"{self.program}/{purpose}")


@dataclass(slots=True)
class Dialogue:
    """A program's context as it grows: each call's prompt is the one before it with its answer and
    what came then. id: of the program, unlike any other's; head: what its first prompt begins with.
    """

    id: str
    head: tuple[Part, ...]
    _calls: list[TraceCall] = field(default_factory=list)

    def say(self, kind: str, *tokens: int) -> None:
        """Append what the user says, or what tools give back."""
        place = len(self._calls)
        self.head += tuple(
            Part(f"{self.id}/{kind}/{place}.{number}", length, kind)
            for number, length in enumerate(tokens)
        )

    def call(self, tokens: int, gap_s: float = 0.0, tool_s: tuple[float, ...] = ()) -> None:
        """Ask with all that was said; the answer has so many tokens and stays in the context."""
        name = f"{self.id}/answer/{len(self._calls)}"
        self._calls.append(
            TraceCall(
                parts=self.head, output_tokens=tokens, gap_s=gap_s, answer=name, tool_s=tool_s
            )
        )
        self.head += (Part(name, tokens, "assistant"),)

    def program(self) -> TraceProgram:
        """The program of all calls so far."""
        return TraceProgram(self.id, tuple(self._calls))
