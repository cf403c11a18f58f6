"""`weft bench overhead`: the cost of Weft and its peers, in one run on one machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median as middle
from typing import Any, Final

import httpx
from rich.progress import Progress

from weft_bench.cli.parts import OverheadOptions
from weft_bench.overhead import growing
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import Column, Rows, figures, show
from weft_bench.stack.processes import NotReady, cpu_seconds, free_port, running
from weft_bench.stack.proxies import OURS, PEERS, Absent, started, why_absent

DIRECT: Final = "direct"
_OURS: Final = "weft"
LABELS: Final = ("", "at once", "proxy")
COLUMNS: Final = (
    Column("rate", "requests/s", "requests/s", ",.0f"),
    Column("added_p50", "ms", "added p50, ms", ".2f"),
    Column("added_p99", "ms", "added p99, ms", ".2f"),
    Column("errors", "requests", "errors", ".0f"),
    Column("cpu", "us/request", "CPU, us", ".0f"),
    Column("weft_rate_ratio", "1", "weft's rate / its", ".2f"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One proxy at one load.

    cpu_us: CPU time of its processes, microseconds a request; 0 if the system does not report it.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    cpu_us: float = 0.0


# (proxy, streamed, concurrent calls)
Cells = Mapping[tuple[str, bool, int], Cell]


def median(samples: Sequence[Cell]) -> Cell:
    """Return the median of several rounds; errors are summed."""
    return Cell(
        middle(s.per_second for s in samples),
        middle(s.p50_ms for s in samples),
        middle(s.p99_ms for s in samples),
        sum(s.errors for s in samples),
        middle(s.cpu_us for s in samples),
    )


def rows(cells: Cells) -> Rows:
    """Return each proxy's latency above a direct call's, and Weft's rate over each peer's."""
    found = {}
    for (name, stream, width), cell in sorted(cells.items(), key=lambda x: (x[0][1], x[0][2])):
        direct = cells[DIRECT, stream, width]
        values = {
            "rate": cell.per_second,
            "added_p50": cell.p50_ms - direct.p50_ms,
            "added_p99": cell.p99_ms - direct.p99_ms,
            "errors": cell.errors,
            "cpu": cell.cpu_us,
        }
        if name not in (DIRECT, _OURS):
            values["weft_rate_ratio"] = cells[_OURS, stream, width].per_second / cell.per_second
        found["stream" if stream else "plain", str(width), name] = values
    return found


_ENGINES: Final = 2
# Keeps the time of a slow proxy with sequential calls below minutes.
_SLOW_SHARE: Final = {"litellm": 4}


def run(options: OverheadOptions) -> int:
    """Measure and report. Returns the exit status: 1 if Weft had errors, 2 for invalid options."""
    unknown = [peer for peer in options.peers if peer not in PEERS]
    if unknown:
        known = ", ".join(PEERS)
        return refuse("overhead", f"unknown peers {unknown}; known: {known}")
    absent: dict[str, str] = {}
    try:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
            engines = _start_engines(options, Path(folder), processes)
            urls, pids = _start(options, engines, Path(folder), processes, absent)
            if options.bodies:
                return _bodies(options, growing.measure(options, urls, pids), absent)
            cells = _measure(options, urls, pids, engines)
    except NotReady as error:
        print(f"weft bench overhead: Weft did not start\n{error}", file=sys.stderr)
        return 1
    _report(options, LABELS, rows(cells), COLUMNS, absent)
    return 1 if any(cell.errors for key, cell in cells.items() if key[0] == OURS.name) else 0


def _bodies(options: OverheadOptions, table: Rows, absent: Mapping[str, str]) -> int:
    _report(options, growing.LABELS, table, growing.COLUMNS, absent)
    return 1 if any(row["errors"] for key, row in table.items() if key[2] == OURS.name) else 0


def _report(
    options: OverheadOptions,
    labels: Sequence[str],
    table: Rows,
    columns: Sequence[Column],
    absent: Mapping[str, str],
) -> None:
    show("A proxy in front of two mock engines", labels, table, columns)
    for name, reason in absent.items():
        print(f"{name}: absent ({reason})")
    configuration: dict[str, Any] = {**asdict(options), "absent": absent}
    finish("overhead", options.json_file, configuration, figures(table, columns))


def _start_engines(options: OverheadOptions, work: Path, processes: ExitStack) -> list[str]:
    engines = []
    for number in range(_ENGINES):
        port = free_port()
        command = [sys.executable, "-m", "weft_bench.fake", "--port", str(port)]
        command += ["--plugin"] if options.plugin else []
        url = f"http://127.0.0.1:{port}"
        processes.enter_context(running(command, f"{url}/health", work / f"mock{number}.log"))
        engines.append(url)
    return engines


def _start(
    options: OverheadOptions,
    engines: list[str],
    work: Path,
    processes: ExitStack,
    absent: dict[str, str],
) -> tuple[dict[str, str], dict[str, int]]:
    """Start every proxy in front of the engines.

    All run until the end, so that each round finds them equally warm. Returns their URLs and
    process ids by name.
    """
    urls, pids = {DIRECT: engines[0]}, {}
    floor = (growing.FLOOR,) if options.bodies else ()
    for proxy in (OURS, *floor, *(PEERS[name] for name in options.peers)):
        if proxy.requirement:
            print(f"{proxy.name}: looking for {proxy.requirement} ...", flush=True)
        try:
            urls[proxy.name], pids[proxy.name] = processes.enter_context(
                started(proxy, engines, work)
            )
        except (Absent, NotReady, OSError) as error:
            if proxy is OURS:
                raise
            absent[proxy.name] = why_absent(error)
    return urls, pids


def _measure(
    options: OverheadOptions, urls: dict[str, str], pids: dict[str, int], engines: list[str]
) -> Cells:
    """Measure all cells in rounds, with the proxies in turn, so that machine drift affects all."""
    samples: dict[tuple[str, bool, int], list[Cell]] = {}
    cells = [(stream, width) for stream in (False, True) for width in options.concurrency]
    with Progress() as progress:
        bar = progress.add_task("measuring", total=(options.rounds + 1) * len(cells) * len(urls))
        # The first round warms up all proxies and is discarded.
        for round_ in range(options.rounds + 1):
            for stream, width in cells:
                for name, url in urls.items():
                    count = max(width, options.requests // _SLOW_SHARE.get(name, 1))
                    count = count if round_ else max(width, count // 5)
                    before, used = answered(engines), _used(pids, name)
                    seconds = options.seconds if round_ else 0.0
                    count, cell = _load(options, url, count, width, stream, seconds)
                    cell = checked(cell, count, answered(engines) - before)
                    cell = replace(cell, cpu_us=1e6 * (_used(pids, name) - used) / count)
                    if round_:
                        samples.setdefault((name, stream, width), []).append(cell)
                    progress.advance(bar)
    return {key: median(found) for key, found in samples.items()}


def _used(pids: dict[str, int], name: str) -> float:
    return cpu_seconds(pids[name]) if name in pids else 0.0


def answered(engines: Sequence[str]) -> int:
    """Return the number of calls that the mock engines have answered since they started."""
    found = 0
    for url in engines:
        for line in httpx.get(f"{url}/metrics", trust_env=False).text.splitlines():
            name, _, value = line.partition(" ")
            found += int(value) if name == "mock_engine_requests_total" else 0
    return found


def checked(cell: Cell, count: int, at_engines: int) -> Cell:
    """Count requests that no engine received as errors. A rate then covers only engine answers."""
    return replace(cell, errors=max(cell.errors, count - at_engines))


def _load(
    options: OverheadOptions, url: str, count: int, width: int, stream: bool, seconds: float
) -> tuple[int, Cell]:
    """Send the load. Returns the number of requests and the cell."""
    command = [
        sys.executable, "-m", "weft_bench.drive.load", url, "--requests", str(count),
        "--concurrency", str(width), "--seconds", str(seconds), *(["--stream"] if stream else []),
        *(["--session", "bench"] if options.session else []),
        *(["--distinct"] if options.distinct else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found.pop("requests"), Cell(**found)
