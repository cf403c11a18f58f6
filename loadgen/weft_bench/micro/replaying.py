"""`weft bench replaying`: latency of a gateway while its tuner replays the last calls.

The replay is that of production: the same process, limits and priority. The load shares the
machine's cores with it and with the mock engines.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from weft_gateway.tuning.process import run_replay
from weft_gateway.tuning.replay.trace import Limits, Objective, ReplicaShape, Trace, Values
from weft_gateway.tuning.shapes import CallShape

from weft_bench.cli.parts import ReplayingOptions
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import Column, figures, show
from weft_bench.stack.processes import NotReady, free_port, running
from weft_bench.stack.proxies import OURS, started
from weft_bench.stats import percentile

_ENGINES: Final = 2
_ALONE: Final = "alone"
_BESIDE: Final = "beside a replay"
_COLUMNS: Final = (
    Column("p50", "ms", "p50, ms", ".2f"),
    Column("p99", "ms", "p99, ms", ".2f"),
    Column("over", "1", "p99 over alone", ".3f"),
    Column("errors", "requests", "errors", ".0f"),
    Column("replays", "replays", "replays", ".0f"),
    Column("cpu", "s", "each, CPU s", ".2f"),
)
# An engine, and one of a third of its speed.
_FAST: Final = ReplicaShape("fast", (0.001, 0.02, 3e-4, 1e-4, 0.0), 16, 2048, 200_000, (7,))
_SLOW: Final = ReplicaShape("slow", (0.003, 0.06, 9e-4, 3e-4, 0.0), 16, 2048, 200_000, (7,))
_CALLS: Final = 20


def run(options: ReplayingOptions) -> int:
    """Measure and report. Returns the exit status: 1 if a call failed or no replay ended, 2 if
    the gateway did not start."""
    trace = msgspec.json.encode(trace_of(options.calls))
    windows: dict[str, list[dict[str, Any]]] = {_ALONE: [], _BESIDE: []}
    cpu_s: list[float] = []
    try:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
            url = _gateway(Path(folder), processes)
            _load(options, url)
            for _ in range(options.rounds):
                windows[_ALONE].append(_load(options, url))
                with _replays(trace, cpu_s):
                    windows[_BESIDE].append(_load(options, url))
    except NotReady as error:
        return refuse("replaying", f"the gateway did not start\n{error}")
    rows = {(name,): _row(found) for name, found in windows.items()}
    rows[_BESIDE,]["over"] = rows[_BESIDE,]["p99"] / rows[_ALONE,]["p99"]
    rows[_BESIDE,]["replays"] = len(cpu_s)
    rows[_BESIDE,]["cpu"] = percentile(cpu_s, 0.5) if cpu_s else 0.0
    title = f"a call every {options.every_ms:g} ms; each replay has {options.calls:,} calls"
    show(title, ("gateway",), rows, _COLUMNS)
    finish("replaying", options.json_file, asdict(options), figures(rows, _COLUMNS))
    failed = any(row["errors"] for row in rows.values())
    return 1 if failed or not cpu_s else 0


def trace_of(calls: int) -> Trace:
    """Return a trace of about this many calls, of programs with 20 calls each, on two engines."""
    rng, begin_s, found = Random(0), 0.0, []
    for program in range(1, max(2, calls // _CALLS) + 1):
        begin_s += rng.expovariate(0.4)
        at_s = begin_s
        for number in range(_CALLS):
            took_s, prompt = rng.uniform(0.5, 2.0), rng.randint(200, 6000)
            replica = rng.choice(("fast", "slow"))
            found.append(
                CallShape(
                    program, program, at_s, at_s + took_s, prompt, prompt // 4, prompt // 4,
                    rng.randint(5, 300), number % 4, 7, replica, number > 3, took_s / 2, took_s,
                )
            )  # fmt: skip
            at_s += took_s + rng.uniform(0.0, 0.2)
    units = sorted({call.unit for call in found})
    return Trace(
        found, units, (_FAST, _SLOW), "work", 2048, "urgency", {}, Values(alpha=0.2),
        Objective.SLOWDOWN,
    )  # fmt: skip


def _gateway(work: Path, processes: ExitStack) -> str:
    engines = []
    for number in range(_ENGINES):
        url = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "weft_bench.fake", "--port", str(port)]
        processes.enter_context(running(command, f"{url}/health", work / f"mock{number}.log"))
        engines.append(url)
    return processes.enter_context(started(OURS, engines, work))[0]


def _load(options: ReplayingOptions, url: str) -> dict[str, Any]:
    """Make calls at fixed times from another process. Returns latencies in ms, and errors."""
    command = [
        sys.executable, "-m", "weft_bench.drive.load", url, "--session", "bench",
        "--seconds", str(options.seconds), "--every", str(options.every_ms / 1000),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def _replays(trace: bytes, cpu_s: list[float]) -> Iterator[None]:
    """Replay again and again during the block. cpu_s: gets the time of each that has ended."""

    async def repeat() -> None:
        while not stopping.is_set():
            cpu_s.append((await run_replay(trace, Limits())).cpu_s)

    stopping = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(repeat()))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _row(windows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the medians over the windows; errors are summed."""
    times = [window["latencies_ms"] for window in windows]
    return {
        "p50": percentile([percentile(one, 0.50) for one in times], 0.5),
        "p99": percentile([percentile(one, 0.99) for one in times], 0.5),
        "errors": sum(window["errors"] for window in windows),
    }
