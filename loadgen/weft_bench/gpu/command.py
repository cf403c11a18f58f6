"""`weft bench gpu`: four systems on real vLLM with a model's shape and dummy weights."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress, TextColumn, TimeElapsedColumn

from weft_bench.cli.gpu import PLAYED, GpuOptions
from weft_bench.costs.step_probe import ProbeError
from weft_bench.drive.client import Client
from weft_bench.gpu.cells import Cell, Results, ResultsError, by_system, cells, load, save
from weft_bench.gpu.engine import EngineError, Started, cache_of, cause, metrics, started
from weft_bench.gpu.fitting import fit_engine
from weft_bench.gpu.host import Host, HostError, look
from weft_bench.gpu.play import Clients, capacity, play_cell, warm_up
from weft_bench.gpu.shapes import SHAPES, write
from weft_bench.gpu.systems import MEASURE, OURS, SYSTEMS
from weft_bench.report import gpu as report
from weft_bench.report.figures import refuse
from weft_bench.stack.processes import NotReady

_CALL_S: Final = 3600.0
# Time to clear the cache and read counters, beside a cell's programs.
_BESIDE_S: Final = 5.0
# A start may be slower than the last one. Without a measured start, the time is a guess.
_START_SLACK: Final = 1.3
_FIRST_START_S: Final = 60.0
# Time to measure steps and swaps of an 8B model, without the two starts.
_FIT_S: Final = 60.0
# Options that all cells of one file share.
_SHARED: Final = (
    "device", "shape", "max_model_len", "slots", "step_tokens", "kv_blocks", "memory_share",
    "swap_gib", "first_quantum_s", "policy", "more", "seed", "window_s", "drain_s", "gap_scale",
)  # fmt: skip
# Exit status if the time limit ended the run before all cells were played.
CELLS_LEFT: Final = 3


class _TimeUp(Exception):
    """The next step would exceed the time limit."""


def run(options: GpuOptions) -> int:
    """Play and report.

    Returns the exit status: 1 if programs or an engine failed, 2 for an unsuitable machine or file,
    CELLS_LEFT if the time limit ended the run.
    """
    ends_s = time.monotonic() + 60 * options.minutes
    try:
        host = look(options.device, options.memory_share, SHAPES[options.shape].weight_bytes)
        found = Results(host.record(), host.versions, configuration(options))
        if options.json_file:
            load(Path(options.json_file), found)
        found.set_capacity(options.capacity)
    except (HostError, ResultsError) as error:
        return refuse("gpu", error)
    failed = up = False
    try:
        with tempfile.TemporaryDirectory(prefix="weft-gpu-") as folder:
            _Run(options, host, found, ends_s, Path(folder)).all()
    except _TimeUp:
        up = True
    except (NotReady, EngineError, ProbeError, OSError, ValueError, ImportError) as error:
        print(f"weft bench gpu: {error}", file=sys.stderr)
        failed = True
    report.show(found.cells, label(host, options.shape))
    print("; ".join(f"{name} {value}" for name, value in found.versions.items() if value))
    left = remaining(options, found)
    if left or up:
        print(f"{len(left)} cells are left; run the same command with the same --json to continue")
    failed = failed or any(values["errors"] for values in found.cells.values())
    return 1 if failed else CELLS_LEFT if left or up else 0


def label(host: Host, shape: str) -> str:
    """Return the heading of every table. It separates figures of a CPU from those of a GPU."""
    return f"{host.gpu.name if host.gpu is not None else 'CPU, no GPU'}, {shape}"


def configuration(options: GpuOptions) -> dict[str, Any]:
    """Return the settings that all cells of one file share."""
    return {name: getattr(options, name) for name in _SHARED}


def remaining(options: GpuOptions, found: Results) -> list[Cell]:
    """Return the selected cells without figures or with failed programs, in order of playing."""
    order = [system for system in PLAYED if system in options.systems]
    wanted = cells(order, options.workloads, options.loads)
    return [cell for cell in wanted if found.cells.get(cell.key, {"errors": 1})["errors"]]


def sessions(options: GpuOptions, found: Results) -> list[tuple[str, list[Cell]]]:
    """Return the engine starts with their cells.

    If the capacity of a workload is unknown, the system that measures it comes first.
    """
    left = by_system(remaining(options, found))
    unknown = any(cell.workload not in found.capacity for _, part in left for cell in part)
    if unknown and left[0][0] != MEASURE:
        left.insert(0, (MEASURE, []))
    return left


@dataclass(frozen=True, slots=True)
class _Run:
    options: GpuOptions
    host: Host
    found: Results
    ends_s: float
    folder: Path

    def all(self) -> None:
        """Run all sessions, then the fit if it is requested and its file does not exist."""
        planned = sessions(self.options, self.found)
        if planned:
            print(plan(self.options, planned), flush=True)
        fit_file = Path(self.options.fit_file)
        fitting = bool(self.options.fit_file) and not fit_file.exists()
        model = self.folder / "model"
        if planned or fitting:
            write(model, self.options.shape, self.options.max_model_len)
        for system, part in planned:
            # Do not start an engine without time left to play.
            self._needs(self._start_s(system) + self.options.longest_s + _BESIDE_S)
            print(f"starting {system} ...", flush=True)
            with started(
                SYSTEMS[system], self.options, model, self._logs(system), self._wait_s()
            ) as at:  # fmt: skip
                try:
                    asyncio.run(self._session(system, part, at))
                except OSError as error:
                    why = f"{system} does not answer ({error}): {cause(at.log)}"
                    raise EngineError(why) from None
        if fitting:
            self._needs(2 * self._start_s(OURS) + _FIT_S)
            fit_engine(self.options, model, self._logs("fit"), self._wait_s())

    async def _session(self, system: str, part: Sequence[Cell], up: Started) -> None:
        options = self.options
        async with (
            Client(up.engine, limit_s=_CALL_S) as engine,
            Client(up.gateway, limit_s=_CALL_S) as gateway,
        ):
            at = Clients(engine, gateway)
            blocks, block_tokens = cache_of(await metrics(engine))
            self.found.engines[system] = {
                **asdict(SYSTEMS[system]),
                "start_s": round(up.start_s, 1),
                "kv_blocks": blocks,
                "block_tokens": block_tokens,
            }
            await warm_up(at, options.workloads[0], options)
            if system == MEASURE:
                await self._measure(at)
            for cell in part:
                self._needs(options.longest_s + _BESIDE_S)
                rate = cell.load * self.found.capacity[cell.workload]
                columns = (TextColumn("{task.description}: {task.completed:.0f} calls"),)
                with Progress(*columns, TimeElapsedColumn(), transient=True) as progress:
                    bar = progress.add_task(cell.key, total=None)
                    outcome = await play_cell(
                        at, cell.workload, rate, options, SYSTEMS[system].tags,
                        lambda b=bar, p=progress: p.advance(b),  # type: ignore[misc]
                    )  # fmt: skip
                values = report.summarise(outcome)
                self.found.cells[cell.key] = values
                self._save()
                print(
                    f"{cell.key}: {values['programs']:.0f} programs, {values['cut']:.0f} cut, "
                    f"mean {values['response_mean']:.4g} s, {self._left_s() / 60:.1f} min left",
                    flush=True,
                )
                if len(errors := [e for r in outcome.play.programs for e in r.errors]):
                    print(f"error: {errors[0]}", file=sys.stderr)

    async def _measure(self, at: Clients) -> None:
        """Measure the unknown capacities of the selected workloads."""
        for workload in self.options.workloads:
            if workload in self.found.capacity:
                continue
            self._needs(self.options.calibration_s + _BESIDE_S)
            rate = await capacity(at, workload, self.options)
            if rate <= 0:
                raise EngineError(
                    f"the engine generated no tokens of {workload}: its capacity is unknown"
                )
            self.found.capacity[workload] = rate
            self._save()
            print(f"{workload}: capacity of {MEASURE} {rate:.4g} programs/s", flush=True)

    def _needs(self, seconds: float) -> None:
        if seconds > self.ends_s - time.monotonic():
            raise _TimeUp

    def _left_s(self) -> float:
        return max(0.0, self.ends_s - time.monotonic())

    def _start_s(self, system: str) -> float:
        known = self.found.engines.get(system, {}).get("start_s")
        return _START_SLACK * float(known) if known else _FIRST_START_S

    def _wait_s(self) -> float:
        return min(self.options.start_s, self._left_s())

    def _logs(self, system: str) -> Path:
        logs = (Path(self.options.logs) if self.options.logs else self.folder) / system
        logs.mkdir(parents=True, exist_ok=True)
        return logs

    def _save(self) -> None:
        if self.options.json_file:
            save(Path(self.options.json_file), self.found)


def plan(options: GpuOptions, planned: Sequence[tuple[str, Sequence[Cell]]]) -> str:
    """Return a summary of the cells to play and their longest duration."""
    number = sum(len(part) for _, part in planned)
    seconds = number * (options.longest_s + _BESIDE_S)
    return (
        f"{number} cells on {len(planned)} engine starts: {seconds / 60:.1f} min at most without "
        f"starts and calibration; time limit {options.minutes:g} min"
    )
