"""Opens a trace: finds the file, recognises its format by its content, reads it."""

from __future__ import annotations

import csv
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from weft_bench.workloads import file as workload_file
from weft_bench.workloads.schema import TraceError, TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.traces import agent_calls, bfcl, coding, prompts, requests, tau, tree

_SUFFIXES: Final = (".jsonl.xz", ".jsonl", ".csv.xz", ".csv")
# Files that only say what another one of the folder speaks of.
_COMPANIONS: Final = (bfcl.FUNCTIONS, prompts.SCHEMAS)
# What parsers raise: of text that is no JSON or no row, nested too deeply, or in too long a field.
_NOT_PARSED: Final = (ValueError, RecursionError, csv.Error)
Record = Mapping[str, Any]
Lines = list[tuple[int, str]]


@dataclass(slots=True)
class _Trace:
    """A file that is being read. line: the number of the line that was parsed last."""

    file: Path
    seed: int
    context: int
    shrink: int
    lines: Lines
    parse: Callable[[str], Any]
    line: int = 0

    @property
    def stem(self) -> str:
        return self.file.name.partition(".")[0]

    def rng(self, purpose: str) -> Random:
        return stream(self.seed, purpose)

    def records(self) -> Iterator[Record]:
        """All of them in the order of the file, parsed as they are asked for."""
        for number, text in self.lines:
            self.line = number
            try:
                record = self.parse(text)
            except _NOT_PARSED as error:
                raise TraceError(f"{self.file}, line {self.line}: {error}") from None
            if not isinstance(record, dict):
                raise TraceError(
                    f"{self.file}, line {self.line}: no object, as all known traces have"
                )
            yield record

    def sample(self) -> Iterator[Record]:
        """All of them in an order that the seed shuffles."""
        self.rng("sample").shuffle(self.lines)
        return self.records()

    def beside(self, name: str) -> Iterator[Record]:
        """The records of another file of the folder."""
        for suffix in _SUFFIXES:
            file = self.file.with_name(name + suffix)
            if file.is_file():
                return replace(self, file=file, lines=_lines(file)).records()
        raise TraceError(f"{self.file} needs {name}.jsonl beside it")

    def shuffled(self, programs: Iterable[TraceProgram]) -> Iterator[TraceProgram]:
        """Programs of which the records must be read in their order."""
        found = list(programs)
        self.rng("sample").shuffle(found)
        yield from found

    def window(self, programs: Iterable[TraceProgram]) -> Iterator[TraceProgram]:
        """Programs in the order in which they came, from one that the seed chooses; behind the last
        comes the first. So bursts stay, and what neighbours share."""
        found = sorted(programs, key=lambda program: program.arrival_s or 0.0)
        times = [program.arrival_s or 0.0 for program in found]
        begin = self.rng("sample").randrange(len(found))
        # From the last one to the first again: as long as between any two.
        turn = (times[-1] - times[0]) * len(found) / max(1, len(found) - 1)
        for place in range(begin, begin + len(found)):
            turns, place = divmod(place, len(found))
            arrival_s = times[place] + turns * turn - times[begin]
            yield replace(found[place], arrival_s=arrival_s)


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of trace. name: its own, or a prefix to the file's. shrinks: lengths are divided."""

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
        # A record tells the usage up to it: all must be read in their order first.
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
    Format(
        "mooncake_",
        "requests with block hashes",
        requests.is_mooncake,
        lambda t: t.window(requests.mooncake(t.records(), f"mooncake_{t.stem}", t.shrink)),
        shrinks=True,
    ),
    Format(
        "azure_",
        "tables of requests (azure_2023)",
        requests.is_azure,
        lambda t: t.window(requests.azure(t.records(), f"azure_{t.stem}", t.shrink)),
        shrinks=True,
    ),
    Format(
        "bfcl_multi_turn",
        "multi-turn tasks",
        bfcl.matches,
        lambda t: bfcl.read(t.sample(), t.beside(bfcl.FUNCTIONS), t.rng("gaps")),
    ),
    Format("gsm8k", "maths problems", prompts.is_gsm8k, lambda t: prompts.gsm8k(t.sample())),
    Format(
        "mt_bench",
        "prompts in two turns",
        prompts.is_mt_bench,
        lambda t: prompts.mt_bench(t.sample(), t.rng("answers")),
    ),
    Format(
        "tatqa",
        "tables with questions",
        prompts.is_tatqa,
        lambda t: prompts.tatqa(t.sample(), t.rng("answers")),
    ),
    Format(
        "spider",
        "questions to databases",
        prompts.is_spider,
        lambda t: prompts.spider(t.sample(), t.beside(prompts.SCHEMAS)),
    ),
)
KNOWN: Final = "workloads that `weft bench workload` wrote, " + ", ".join(
    f"{f.about} ({f.name.rstrip('_')})" if f.name else f.about for f in FORMATS
)


def read_trace(
    path: Path, seed: int, context: int = 0, shrink: int = coding.DEFAULT_SHRINK
) -> tuple[str, Iterator[TraceProgram]]:
    """The trace's name, and its programs, read as they are asked for: a trace may be far larger
    than what is played.

    Programs of which each stands alone come in an order that the seed shuffles; those with recorded
    arrivals in their order, from a place that the seed chooses; a workload's as it was written.

    path: a file of JSON lines or a table, plain or .xz, or a folder that holds one. context: calls
    far beyond so many tokens need not be made, 0 for all. shrink: lengths of traces without text
    are divided by it. Raises TraceError, for a broken record when it is met.
    """
    file = find(path)
    lines = _lines(file)
    parse: Callable[[str], Any] = json.loads
    if ".csv" in file.suffixes and lines:
        number, head = lines.pop(0)
        try:
            parse = partial(_row, next(csv.reader([head])))
        except csv.Error as error:
            raise TraceError(f"{file}, line {number}: {error}") from None
    trace = _Trace(file, seed, context, shrink, lines, parse)
    if not lines:
        raise TraceError(f"{file} is empty")
    first = next(trace.records())
    if workload_file.matches(first):
        return _written(trace, first)
    for known in FORMATS:
        if known.matches(first):
            name = known.name if known.name and known.name[-1] != "_" else known.name + trace.stem
            return name, _guarded(trace, known.read(trace))
    raise TraceError(f"{file}: no known trace format; known are {KNOWN}")


def shrunk(name: str) -> bool:
    """Whether lengths of the trace of this name were divided by `shrink`."""
    return any(f.shrinks and name.startswith(f.name) for f in FORMATS)


def find(path: Path) -> Path:
    """The trace file that a path means. Raises TraceError."""
    if path.is_dir():
        found = sorted(
            p
            for p in path.iterdir()
            if p.name.endswith(_SUFFIXES) and p.name.partition(".")[0] not in _COMPANIONS
        )
        if len(found) != 1:
            raise TraceError(f"{path} holds {len(found)} trace files; name one of them")
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
    """The programs; what is wrong with a record is told with its line."""
    try:
        yield from programs
    except TraceError:
        raise
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        raise TraceError(f"{trace.file}, line {trace.line}: {what}") from None


def _row(columns: list[str], text: str) -> dict[str, str]:
    values = next(csv.reader([text]))
    if len(values) != len(columns):
        raise ValueError(f"{len(values)} values in {len(columns)} columns")
    return dict(zip(columns, values, strict=True))


def _lines(file: Path) -> Lines:
    try:
        opening = lzma.open if file.suffix == ".xz" else open
        with opening(file, "rt", encoding="utf-8") as opened:
            return [(number, line) for number, line in enumerate(opened, 1) if line.strip()]
    except (lzma.LZMAError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{file} cannot be read: {error}") from None
