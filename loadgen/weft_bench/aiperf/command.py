"""`weft bench workload`: writes for aiperf, or reads its programs' times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace as with_values
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from weft_bench.agents.contents import exact_chat
from weft_bench.aiperf.exchange import program_times, rows
from weft_bench.aiperf.weka import traces
from weft_bench.cli.studies import WorkloadOptions
from weft_bench.report import rows as report
from weft_bench.report.figures import refuse, status
from weft_bench.report.rows import Column
from weft_bench.workloads.arrivals import arrivals
from weft_bench.workloads.cutting import ReadyProgram, fitting
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.traces.files import read_records, read_trace

_PROGRAMS: Final = 100
# For text, in current vocabularies.
_BYTES_PER_TOKEN: Final = 4.0
_COLUMNS: Final = (
    Column("programs", "programs", "programs"),
    Column("errors", "programs", "errors"),
    Column("calls", "calls", "calls"),
    Column("completion_mean", "s", "mean, s"),
    Column("completion_p50", "s", "p50, s"),
    Column("completion_p95", "s", "p95, s"),
    Column("completion_p99", "s", "p99, s"),
    Column("interactivity", "1/s", "interactivity, tokens/s"),
    Column("slow_tail", "1/s", "slow tail, tokens/s"),
)


def run(options: WorkloadOptions) -> int:
    """Write or read. Returns the exit status: 1 if a program failed, 2 for invalid input."""
    try:
        if options.aiperf_out:
            _write(options)
            return 0
        if options.weka_out:
            _write_weka(options)
            return 0
        lines = Path(options.aiperf_results).read_text().splitlines()
        found = program_times(map(json.loads, lines))
    except (KeyError, TypeError, ValueError, OSError) as error:
        return refuse("workload", error)
    report.show("Program completion times", ("file",), {(options.aiperf_results,): found}, _COLUMNS)
    return status([f"{found['errors']:.0f} programs have errors"] if found["errors"] else [])


def _write(options: WorkloadOptions) -> None:
    ready = list(islice(_fitting(options), options.programs or _PROGRAMS))
    times = arrivals(
        options.arrivals,
        stream(options.seed, "arrivals"),
        options.rate,
        [program.arrival_s for program in ready],
    )
    written = [
        json.dumps(row)
        for program, arrival_s in zip(ready, times, strict=True)
        for row in rows(program, arrival_s, options.dilate)
    ]
    if not written:
        raise ValueError(f"no program of {options.name} fits {options.context} tokens")
    Path(options.aiperf_out).write_text("\n".join([*written, ""]))
    print(f"{options.aiperf_out}: {len(ready)} programs, {len(written)} calls")


def _write_weka(options: WorkloadOptions) -> None:
    """Write one file a session. Raises ValueError without one, OSError if the folder exists."""
    records = read_records(Path(options.name), options.seed)
    found = list(
        islice(traces(records, options.context, options.calls), options.programs or _PROGRAMS)
    )
    if not found:
        raise ValueError(
            f"{options.name} has no recorded coding session of {options.context} tokens"
        )
    folder = Path(options.weka_out)
    folder.mkdir(parents=True)
    for number, trace in enumerate(found):
        (folder / f"trace-{number:04}.json").write_text(json.dumps(trace))
    print(f"{folder}: {len(found)} sessions")


def _fitting(options: WorkloadOptions) -> Iterator[ReadyProgram]:
    """Yield the programs as chats, cut to the number of calls and the context."""
    cut = (replace(one, calls=one.calls[: options.calls or None]) for one in _programs(options))
    for ready in fitting(cut, options.context, _BYTES_PER_TOKEN):
        calls = [exact_chat(one, f"{ready.id}/{n}") for n, one in enumerate(ready.calls)]
        yield with_values(ready, calls=tuple(calls))


def _programs(options: WorkloadOptions) -> Iterator[TraceProgram]:
    if options.name in WORKLOADS:
        return WORKLOADS[options.name].generate(options.seed, options.programs or _PROGRAMS)
    return read_trace(Path(options.name), options.seed)[1]
