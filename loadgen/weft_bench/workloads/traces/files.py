"""Opens a trace: finds the file, detects its format from the content, reads it."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from weft_bench.workloads import file as workload_file
from weft_bench.workloads.schema import TraceError, TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.traces import agent_calls, coding, tau, tree

_SUFFIXES: Final = (".jsonl.xz", ".jsonl")
Record = Mapping[str, Any]
Lines = list[tuple[int, str]]


@dataclass(slots=True)
class _Trace:
    """A trace file that is being read. line: number of the last parsed line."""

    file: Path
    seed: int
    context: int
    shrink: int
    lines: Lines
    line: int = 0

    @property
    def stem(self) -> str:
        return self.file.name.partition(".")[0]

    def rng(self, purpose: str) -> Random:
        return stream(self.seed, purpose)

    def records(self) -> Iterator[Record]:
        """Yield all records in the order of the file, parsed on demand."""
        for number, text in self.lines:
            self.line = number
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise TraceError(f"{self.file}, line {self.line}: {error}") from None
            if not isinstance(record, dict):
                raise TraceError(f"{self.file}, line {self.line}: the record is not a JSON object")
            yield record

    def sample(self) -> Iterator[Record]:
        """Yield all records in an order that the seed shuffles."""
        self.rng("sample").shuffle(self.lines)
        return self.records()

    def shuffled(self, programs: Iterable[TraceProgram]) -> Iterator[TraceProgram]:
        """Shuffle programs whose records must be read in order."""
        found = list(programs)
        self.rng("sample").shuffle(found)
        yield from found

    def window(self, programs: Iterable[TraceProgram]) -> Iterator[TraceProgram]:
        """Yield programs in order of arrival, from one that the seed selects, around to the first.

        This keeps bursts, and the sharing between neighbours.
        """
        found = sorted(programs, key=lambda program: program.arrival_s or 0.0)
        times = [program.arrival_s or 0.0 for program in found]
        begin = self.rng("sample").randrange(len(found))
        # The gap from the last program to the first is the mean gap.
        turn = (times[-1] - times[0]) * len(found) / max(1, len(found) - 1)
        for place in range(begin, begin + len(found)):
            turns, place = divmod(place, len(found))
            arrival_s = times[place] + turns * turn - times[begin]
            yield replace(found[place], arrival_s=arrival_s)


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format.

    name: of the trace, "" for the file's name. shrinks: lengths are divided by `shrink`.
    """

    name: str
    about: str
    matches: Callable[[Record], bool]
    read: Callable[[_Trace], Iterator[TraceProgram]]
    shrinks: bool = False


FORMATS: Final = (
    Format(
        "tree_of_thoughts",
        "searches",
        tree.matches,
        # A record has the total usage so far, so all records must be read in order.
        lambda t: t.shuffled(tree.read(t.records())),
    ),
    Format(
        "coding_sessions",
        "coding sessions",
        coding.matches,
        lambda t: coding.read(t.sample(), t.shrink, t.context),
        shrinks=True,
    ),
    Format(
        "tau_airline",
        "tau-bench trajectories",
        tau.matches,
        lambda t: tau.read(t.sample(), t.rng("gaps")),
    ),
    Format(
        "",
        "recorded calls of agents (agent_calls)",
        agent_calls.matches,
        lambda t: t.window(agent_calls.read(t.records())),
    ),
)
KNOWN: Final = "workloads that `weft bench workload` wrote, " + ", ".join(
    f"{f.about} ({f.name})" if f.name else f.about for f in FORMATS
)


def read_trace(
    path: Path, seed: int, context: int = 0, shrink: int = coding.DEFAULT_SHRINK
) -> tuple[str, Iterator[TraceProgram]]:
    """Return the trace's name and its programs, which are read on demand.

    A trace may be far larger than the part that is played. Independent programs come in an order
    that the seed shuffles. Programs with recorded arrivals come in their order, from a start that
    the seed selects. A workload's programs come as written.

    path: a file of JSON lines, plain or .xz, or a folder with one such file. context: calls far
    beyond this number of tokens may be omitted, 0 for no limit. shrink: divides the lengths of
    traces without text. Raises TraceError; for an invalid record, when it is reached.
    """
    file = find(path)
    lines = _lines(file)
    trace = _Trace(file, seed, context, shrink, lines)
    if not lines:
        raise TraceError(f"{file} is empty")
    first = next(trace.records())
    if workload_file.matches(first):
        return _written(trace, first)
    for known in FORMATS:
        if known.matches(first):
            return known.name or trace.stem, _guarded(trace, known.read(trace))
    raise TraceError(f"{file}: unknown trace format; known are {KNOWN}")


def shrunk(name: str) -> bool:
    """Return whether `shrink` divides the lengths of the trace with this name."""
    return name in {known.name for known in FORMATS if known.shrinks}


def find(path: Path) -> Path:
    """Return the trace file of a path. Raises TraceError."""
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.name.endswith(_SUFFIXES))
        if len(found) != 1:
            raise TraceError(f"{path} holds {len(found)} trace files; select one of them")
        return found[0]
    if not path.is_file():
        raise TraceError(f"{path} does not exist")
    return path


def _written(trace: _Trace, header: Record) -> tuple[str, Iterator[TraceProgram]]:
    try:
        name = workload_file.name_of(header)
    except ValueError as error:
        raise TraceError(f"{trace.file}, line {trace.line}: {error}") from None
    del trace.lines[0]
    return name, _guarded(trace, workload_file.read(trace.records()))


def _guarded(trace: _Trace, programs: Iterator[TraceProgram]) -> Iterator[TraceProgram]:
    """Yield the programs. Errors in a record carry its line number."""
    try:
        yield from programs
    except TraceError:
        raise
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        raise TraceError(f"{trace.file}, line {trace.line}: {what}") from None


def _lines(file: Path) -> Lines:
    try:
        opening = lzma.open if file.suffix == ".xz" else open
        with opening(file, "rt", encoding="utf-8") as opened:
            return [(number, line) for number, line in enumerate(opened, 1) if line.strip()]
    except (lzma.LZMAError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{file} cannot be read: {error}") from None
