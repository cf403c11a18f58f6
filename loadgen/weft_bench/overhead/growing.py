"""`weft bench overhead --bodies`: what a call costs by the size of its body."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.progress import Progress

from weft_bench.cli.parts import OverheadOptions
from weft_bench.report.rows import Column, Rows
from weft_bench.stack.proxies import Proxy

LABELS: Final = ("session id", "bytes", "proxy")
COLUMNS: Final = (
    Column("cpu", "us/request", "CPU, us", ",.0f"),
    Column("cpu_over", "1", "CPU / vllm-router's", ".2f"),
    Column("cpu_growth", "1", "CPU / that at 150 KB", ".2f"),
    Column("added_p50", "ms", "added p50, ms", ".2f"),
    Column("added_p99", "ms", "added p99, ms", ".2f"),
    Column("errors", "requests", "errors", ".0f"),
    Column("memory", "bytes", "KB per open program", ",.0f", 1e-3),
)
DIRECT: Final = "direct"
_RIVAL: Final = "vllm-router"
_BASE: Final = 150_000
# The conversations whose memory is measured, and their size.
_OPEN: Final = 24
_OPEN_BYTES: Final = 850_000
# Conversations before them, which fill stores of a fixed size and the allocator's free memory.
_OPEN_BEFORE: Final = 64
Sample = dict[str, float]
Samples = Mapping[tuple[str, int, str], Sequence[Sample]]


def _floor(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
    command = [sys.executable, "-m", "weft_bench.overhead.floor", engines[0]]
    return [*command, "--port", str(port)]


# The C library keeps free memory, as in the gateway.
_KEEPING: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
# Receiving and sending with the gateway's server and connections, and nothing else.
FLOOR: Final = Proxy("floor", "", _floor, environment=_KEEPING)


def measure(options: OverheadOptions, urls: Mapping[str, str], pids: Mapping[str, int]) -> Rows:
    """Play conversations of each size through each proxy in turn, in rounds. Returns the rows."""
    samples: dict[tuple[str, int, str], list[Sample]] = {}
    cells = [(named, size) for named in ("yes", "no") for size in options.bodies]
    seeds = iter(range(1, 1 << 20))
    with Progress() as progress:
        total = (options.rounds + 1) * len(cells) * len(urls)
        bar = progress.add_task("measuring", total=total)
        # The first round warms up all proxies and is discarded.
        for round_ in range(options.rounds + 1):
            for named, size in cells:
                for name, url in urls.items():
                    calls = options.requests if round_ else 2
                    found = _play(options, url, pids.get(name, 0), size, calls, named, next(seeds))
                    if round_:
                        samples.setdefault((named, size, name), []).append(found)
                    progress.advance(bar)
    memory = {} if not options.growing else _memory(options, urls, pids, seeds)
    return rows(samples, memory)


def rows(samples: Samples, memory: Mapping[tuple[str, str], float]) -> Rows:
    """Return the medians of the rounds. memory: bytes per open program by session id and proxy."""
    cells = {
        key: {name: median(one[name] for one in found) for name in found[0]}
        for key, found in samples.items()
    }
    found: dict[tuple[str, str, str], Sample] = {}
    for (named, size, name), cell in sorted(cells.items()):
        direct, base = cells[named, size, DIRECT], cells.get((named, _BASE, name))
        values = {
            "added_p50": cell["p50_ms"] - direct["p50_ms"],
            "added_p99": cell["p99_ms"] - direct["p99_ms"],
            "errors": sum(one["errors"] for one in samples[named, size, name]),
        }
        if name != DIRECT:
            values["cpu"] = cell["cpu_us"]
            if (named, size, _RIVAL) in cells:
                values["cpu_over"] = cell["cpu_us"] / cells[named, size, _RIVAL]["cpu_us"]
            if base is not None:
                values["cpu_growth"] = cell["cpu_us"] / base["cpu_us"]
        if size == _OPEN_BYTES and (named, name) in memory:
            values["memory"] = memory[named, name]
        found[named, str(size), name] = values
    return found


def _memory(
    options: OverheadOptions,
    urls: Mapping[str, str],
    pids: Mapping[str, int],
    seeds: Iterator[int],
) -> dict[tuple[str, str], float]:
    """Return the bytes that a proxy holds for each program between its calls."""
    found = {}
    for name, pid in pids.items() if _OPEN_BYTES in options.bodies else ():
        for named, fill in (("no", _OPEN_BEFORE), ("yes", _OPEN_BEFORE // 8)):
            for _ in range(fill):
                _play(options, urls[name], 0, _OPEN_BYTES, 0, named, next(seeds))
            before = _resident_bytes(pid)
            for _ in range(_OPEN):
                _play(options, urls[name], 0, _OPEN_BYTES, 0, named, next(seeds))
            found[named, name] = max(0.0, (_resident_bytes(pid) - before) / _OPEN)
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def _play(
    options: OverheadOptions, url: str, pid: int, size: int, calls: int, named: str, seed: int
) -> Any:
    command = [
        sys.executable, "-m", "weft_bench.overhead.play", url, "--pid", str(pid),
        "--size", str(size), "--calls", str(calls), "--seed", str(seed),
        *(["--growing"] if options.growing else []), *(["--session"] if named == "yes" else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
