"""`weft bench workload`: writes workloads to files and prints their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from weft_bench.aiperf.command import run as aiperf
from weft_bench.cli.studies import WorkloadOptions
from weft_bench.report import rows as report
from weft_bench.report.figures import Figure, refuse, write_json
from weft_bench.workloads import file as workload_file
from weft_bench.workloads.arrivals import KINDS, arrivals
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import TraceError, TraceProgram
from weft_bench.workloads.statistics import statistics
from weft_bench.workloads.streams import stream
from weft_bench.workloads.traces.files import read_trace
from weft_bench.workloads.traces.published import PUBLISHED
from weft_bench.workloads.workload import Workload, arriving

# Units by the beginning of a statistic's name.
_UNITS: Final = {
    "prompt before tools": "1", "gap": "s", "tool mean": "s", "tool variance": "s^2",
    "prompt": "tokens", "new prompt": "tokens", "output": "tokens", "arrivals per s": "1/s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Described:
    """One workload: its source, its published statistics, and those found here."""

    name: str
    source: str
    published: Mapping[str, float]
    found: Mapping[str, float]


def figures(rows: Sequence[Described]) -> list[Figure]:
    """Return all numbers as `workload/statistic` and `workload/statistic/published`."""
    found = []
    for row in rows:
        for name, value in row.found.items():
            found.append(Figure(f"{row.name}/{name}", value, _unit(name)))
            if name in row.published:
                at = f"{row.name}/{name}/published"
                found.append(Figure(at, row.published[name], _unit(name)))
    return found


def show(rows: Sequence[Described]) -> None:
    """Print a table for each workload with every statistic and its published value."""
    for row in rows:
        cells = []
        for name, value in row.found.items():
            published = number(row.published[name]) if name in row.published else ""
            cells.append((name, _unit(name), published, number(value)))
        columns = ("statistic", "unit", "published", "here")
        report.print_table(f"{row.name} ({row.source})", columns, cells, 2)


def markdown(rows: Sequence[Described]) -> str:
    """Return a table in Markdown with a row for each workload."""
    cells = []
    for row in rows:
        told = _list({name: value for name, value in row.published.items() if name in row.found})
        cells.append((f"`{row.name}`", row.source, told or "nothing", _list(row.found)))
    return report.markdown(("workload", "source", "published", "here"), cells, 4)


def number(value: float) -> str:
    """Return a number with its significant digits."""
    if value == int(value):
        return f"{int(value):,}"
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _list(values: Mapping[str, float]) -> str:
    """Return text such as "calls mean 2, max 7; output mean 3", grouped by the names' beginning."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        head, _, tail = name.rpartition(" ")
        group = groups.setdefault(head or tail, [])
        group.append(f"{tail} {number(value)}" if head else number(value))
    return "; ".join(f"{head} {', '.join(group)}" for head, group in groups.items())


def _unit(name: str) -> str:
    return next((unit for head, unit in _UNITS.items() if name.startswith(head)), "1")


ALL: Final = "all"
_TO_WRITE: Final = 100
_TO_DESCRIBE: Final = 1000


def run(options: WorkloadOptions) -> int:
    """Write, describe, or list; or what `aiperf.command` does. Returns the exit status: 2 for
    invalid input.
    """
    if options.aiperf_out or options.weka_out or options.aiperf_results:
        return aiperf(options)
    try:
        if options.name:
            _write(options)
        if options.describe:
            _describe(options)
        if not options.name and not options.describe:
            for workload in WORKLOADS.values():
                print(f"{workload.name:12} {workload.source}")
    except (TraceError, ValueError) as error:
        return refuse("workload", error)
    return 0


def made(options: WorkloadOptions, workload: Workload, count: int) -> Iterator[TraceProgram]:
    """Return a workload's programs with arrivals from a separate random stream.

    Raises ValueError for an unknown kind of arrivals.
    """
    if options.arrivals not in KINDS:
        raise ValueError(f"unknown arrivals {options.arrivals}; known are {', '.join(KINDS)}")
    times = arrivals(
        options.arrivals, stream(options.seed, "arrivals"), options.rate, [None] * count
    )
    return arriving(workload.generate(options.seed, count), times)


def _write(options: WorkloadOptions) -> None:
    workload = _known(options.name)
    count = options.programs or _TO_WRITE
    made_of = {
        "source": workload.source,
        "seed": options.seed,
        "rate": options.rate,
        "arrivals": options.arrivals,
    }
    path = Path(options.out)
    written = workload_file.write(path, workload.name, made(options, workload, count), made_of)
    print(f"{path}: {written} programs of {workload.name}")


def _describe(options: WorkloadOptions) -> None:
    names = tuple(WORKLOADS) if options.describe == (ALL,) else options.describe
    rows = [_row(options, name) for name in names]
    if options.markdown:
        print(markdown(rows))
    else:
        show(rows)
    if options.json_file:
        write_json(Path(options.json_file), "weft bench workload", asdict(options), figures(rows))


def _row(options: WorkloadOptions, name: str) -> Described:
    if name in WORKLOADS or not Path(name).exists():
        workload = _known(name)
        count = options.programs or _TO_DESCRIBE
        return _described(workload, list(made(options, workload, count)))
    title, programs = read_trace(Path(name), options.seed)
    some: Iterable[TraceProgram] = islice(programs, options.programs or None)
    if title in WORKLOADS:
        return _described(WORKLOADS[title], list(some))
    source, published = PUBLISHED.get(title, (name, {}))
    return Described(title, source, published, statistics(some))


def _described(workload: Workload, programs: list[TraceProgram]) -> Described:
    found = statistics(programs)
    if workload.extra is not None:
        found |= workload.extra(programs)
    return Described(workload.name, workload.source, workload.published, found)


def _known(name: str) -> Workload:
    if name not in WORKLOADS:
        raise TraceError(
            f"{name} is neither a file nor a workload; known are {', '.join(WORKLOADS)}"
        )
    return WORKLOADS[name]
