"""Opens a trace: finds the file, detects its format from the content, reads it."""

from __future__ import annotations

import csv
import dataclasses
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from weft_bench.workloads import file as workload_file
from weft_bench.workloads.schema import TraceError, TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.traces import agent_calls, bfcl, coding, prompts, requests, tau, tree

_SUFFIXES: Final = (".jsonl.xz", ".jsonl", ".csv.xz", ".csv")
# Files with supplementary data for another file in the same folder.
_COMPANIONS: Final = (bfcl.FUNCTIONS, prompts.SCHEMAS)
# Errors of the parsers: invalid JSON or CSV, too deep nesting, or a too long field.
_NOT_PARSED: Final = (ValueError, RecursionError, csv.Error)
Record = Mapping[str, Any]
Lines = list[tuple[int, str]]


@dataclass(slots=True)
class _Trace:
    """A trace file that is being read. line: number of the last parsed line."""

    file: Path
    seed: int
    lines: Lines
    parse: Callable[[str], Any]
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
                record = self.parse(text)
            except _NOT_PARSED as error:
                raise TraceError(f"{self.file}, line {self.line}: {error}") from None
            if not isinstance(record, dict):
                raise TraceError(f"{self.file}, line {self.line}: the record is not a JSON object")
            yield record

    def sample(self) -> Iterator[Record]:
        """Yield all records in an order that the seed shuffles."""
        self.rng("sample").shuffle(self.lines)
        return self.records()

    def beside(self, name: str) -> Iterator[Record]:
        """Yield the records of another file in the same folder."""
        for suffix in _SUFFIXES:
            file = self.file.with_name(name + suffix)
            if file.is_file():
                return dataclasses.replace(self, file=file, lines=_lines(file)).records()
        raise TraceError(f"{self.file} needs {name}.jsonl beside it")

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
    """A trace format. The first one whose fields a record has applies.

    name: of the trace, or a prefix to the file's name.
    """

    name: str
    about: str
    fields: frozenset[str]
    read: Callable[[_Trace], Iterator[TraceProgram]]


def _format(
    name: str,
    about: str,
    fields: str,
    read: Callable[[_Trace], Iterator[TraceProgram]],
) -> Format:
    return Format(name, about, frozenset(fields.split()), read)


FORMATS: Final = (
    _format(
        "tree_of_thoughts", "searches", "steps usage_so_far",
        # A record has the total usage so far, so all records must be read in order.
        lambda t: t.shuffled(tree.read(t.records())),
    ),
    _format(
        "coding_sessions", "coding sessions", "requests block_size",
        lambda t: coding.read(t.sample()),
    ),
    _format(
        "tau_airline", "tau-bench trajectories", "messages",
        lambda t: tau.read(t.sample(), t.rng("gaps")),
    ),
    _format(
        "", "recorded calls of agents (agent_calls)", "session_id timestamp input output",
        lambda t: t.window(agent_calls.read(t.records())),
    ),
    _format(
        "mooncake_", "requests with block hashes",
        "timestamp input_length output_length hash_ids",
        lambda t: t.window(requests.mooncake(t.records(), f"mooncake_{t.stem}")),
    ),
    _format(
        "azure_", "tables of requests (azure_2023)", " ".join(requests.AZURE),
        lambda t: t.window(requests.azure(t.records(), f"azure_{t.stem}")),
    ),
    _format(
        "bfcl_multi_turn", "multi-turn tasks", "question involved_classes path",
        lambda t: bfcl.read(t.sample(), t.beside(bfcl.FUNCTIONS), t.rng("gaps")),
    ),
    _format("gsm8k", "maths problems", "question answer", lambda t: prompts.gsm8k(t.sample())),
    _format(
        "mt_bench", "prompts in two turns", "turns question_id",
        lambda t: prompts.mt_bench(t.sample(), t.rng("answers")),
    ),
    _format(
        "tatqa", "tables with questions", "table paragraphs questions",
        lambda t: prompts.tatqa(t.sample(), t.rng("answers")),
    ),
    _format(
        "spider", "questions to databases", "db_id question query",
        lambda t: prompts.spider(t.sample(), t.beside(prompts.SCHEMAS)),
    ),
)  # fmt: skip
KNOWN: Final = "workloads that `weft bench workload` wrote, " + ", ".join(
    f"{f.about} ({f.name.rstrip('_')})" if f.name else f.about for f in FORMATS
)


def read_trace(path: Path, seed: int) -> tuple[str, Iterator[TraceProgram]]:
    """Return the trace's name and its programs, which are read on demand.

    A trace may be far larger than the part that is played. Independent programs come in an order
    that the seed shuffles. Programs with recorded arrivals come in their order, from a start that
    the seed selects. A workload's programs come as written.

    path: a file of JSON lines or a table, plain or .xz, or a folder with one such file. Raises
    TraceError; for an invalid record, when it is reached.
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
    trace = _Trace(file, seed, lines, parse)
    if not lines:
        raise TraceError(f"{file} is empty")
    first = next(trace.records())
    if workload_file.matches(first):
        return _written(trace, first)
    for known in FORMATS:
        if known.fields <= first.keys():
            name = known.name if known.name and known.name[-1] != "_" else known.name + trace.stem
            return name, _guarded(trace, known.read(trace))
    raise TraceError(f"{file}: unknown trace format; known are {KNOWN}")


def read_records(path: Path, seed: int) -> Iterator[Record]:
    """Yield the records of recorded coding sessions in an order that the seed shuffles. Raises
    TraceError for another file.
    """
    file = find(path)
    trace = _Trace(file, seed, _lines(file), json.loads)
    sessions = next(one for one in FORMATS if one.name == "coding_sessions")
    if not trace.lines or not sessions.fields <= next(trace.records()).keys():
        raise TraceError(f"{file} has no recorded coding sessions")
    return trace.sample()


def find(path: Path) -> Path:
    """Return the trace file of a path. Raises TraceError."""
    if path.is_dir():
        found = sorted(
            p
            for p in path.iterdir()
            if p.name.endswith(_SUFFIXES) and p.name.partition(".")[0] not in _COMPANIONS
        )
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
