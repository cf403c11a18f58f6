"""`weft bench aiperf`: writes a workload for aiperf, or reads the times of its programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from weft_bench.aiperf.exchange import program_times, rows
from weft_bench.cli.aiperf import AiperfOptions
from weft_bench.peers.contents import as_chat
from weft_bench.report import rows as report
from weft_bench.report.figures import refuse, status
from weft_bench.report.rows import Column
from weft_bench.workloads.arrivals import arrivals
from weft_bench.workloads.cutting import ReadyProgram, fit
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.traces.files import read_trace

# For text, in current vocabularies.
_BYTES_PER_TOKEN: Final = 4.0
# For generated words of random characters, in the demo model's vocabulary. Larger vocabularies need
# fewer tokens.
_BYTES_PER_GENERATED_TOKEN: Final = 1.4
_COLUMNS: Final = (
    Column("programs", "programs", "programs"),
    Column("errors", "programs", "errors"),
    Column("calls", "calls", "calls"),
    Column("completion_mean", "s", "mean, s"),
    Column("completion_p50", "s", "p50, s"),
    Column("completion_p95", "s", "p95, s"),
    Column("completion_p99", "s", "p99, s"),
)


def run(options: AiperfOptions) -> int:
    """Write or read. Returns the exit status: 1 if a program failed, 2 for invalid input."""
    try:
        if options.out:
            _write(options)
            return 0
        lines = Path(options.results).read_text().splitlines()
        found = program_times(map(json.loads, lines))
    except (KeyError, TypeError, ValueError, OSError) as error:
        return refuse("aiperf", error)
    report.show("Program completion times", ("file",), {(options.results,): found}, _COLUMNS)
    return status([f"{found['errors']:.0f} programs have errors"] if found["errors"] else [])


def _write(options: AiperfOptions) -> None:
    ready = list(islice(_fitting(options), options.programs))
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
        raise ValueError(f"no program of {options.workload} fits {options.context} tokens")
    Path(options.out).write_text("\n".join([*written, ""]))
    print(f"{options.out}: {len(ready)} programs, {len(written)} calls")


def _fitting(options: AiperfOptions) -> Iterator[ReadyProgram]:
    """Yield the programs as chats, cut to the number of calls and the context."""
    for program in _programs(options):
        calls = program.calls[: options.calls or None]
        generated = not any(call.messages for call in calls)
        ratio = _BYTES_PER_GENERATED_TOKEN if generated else _BYTES_PER_TOKEN
        chat = replace(program, calls=tuple(map(as_chat, calls)))
        ready = fit(chat, options.context, ratio)
        if ready is not None:
            yield ready


def _programs(options: AiperfOptions) -> Iterator[TraceProgram]:
    if options.workload in WORKLOADS:
        return WORKLOADS[options.workload].generate(options.seed, options.programs)
    return read_trace(Path(options.workload), options.seed, shrink=options.shrink)[1]
