"""`weft bench gpu`: four systems on real vLLM with a model's shape and dummy weights."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from weft_bench.costs.step_probe import ProbeError
from weft_bench.gpu import results as store
from weft_bench.gpu.cells import LOADS, WORKLOADS, Budget, Cell, by_system, cells
from weft_bench.gpu.engine import EngineError, Started, cache_of, cause, metrics, started
from weft_bench.gpu.fitting import fit_engine
from weft_bench.gpu.host import Host, HostError, look
from weft_bench.gpu.play import Scene, capacity, connect, play_cell, warm_up
from weft_bench.gpu.results import Results, ResultsError
from weft_bench.gpu.shapes import SHAPES, write
from weft_bench.gpu.systems import MEASURE, OURS, PLAYED, SYSTEMS, EngineOptions
from weft_bench.report import gpu as report
from weft_bench.stack.processes import NotReady

# Emptying the cache and reading counts, beside a cell's programs.
_BESIDE_S: Final = 5.0
# A measured start may be slower the next time; an unmeasured one is a guess.
_START_SLACK: Final = 1.3
_FIRST_START_S: Final = 60.0
# Steps and swaps of an 8B model, beside the two starts.
_FIT_S: Final = 60.0
# Exit status where the time was up before all cells were played.
CELLS_LEFT: Final = 3


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """Options of the command; see `weft bench gpu --help`. capacity: programs a second by workload,
    instead of measuring it. start_s: how long an engine may take to start. logs: a folder in which
    what engines and gateways print is kept."""

    device: str = "cuda"
    shape: str = "8b"
    systems: tuple[str, ...] = PLAYED
    workloads: tuple[str, ...] = WORKLOADS
    loads: tuple[float, ...] = LOADS
    capacity: Mapping[str, float] = field(default_factory=dict)
    calibration_s: float = 60.0
    minutes: float = 600.0
    start_s: float = 600.0
    engine: EngineOptions = field(default_factory=EngineOptions)
    scene: Scene = field(default_factory=Scene)
    rounds: int = 5
    json_file: str = ""
    fit_file: str = ""
    logs: str = ""


class _TimeUp(Exception):
    """What comes next would not end in time."""


def run(options: GpuOptions) -> int:
    """Play and report. Returns the exit status: 1 where programs failed or an engine did, 2 for a
    machine or a file that does not serve, CELLS_LEFT where the time was up."""
    budget = Budget(time.monotonic(), 60 * options.minutes)
    try:
        host = look(options.device, options.engine.memory_share, SHAPES[options.shape].weight_bytes)
        found = Results(host.record(), host.versions, configuration(options))
        if options.json_file:
            store.load(Path(options.json_file), found)
        found.set_capacity(options.capacity)
    except (HostError, ResultsError) as error:
        print(f"weft bench gpu: {error}", file=sys.stderr)
        return 2
    failed = up = False
    try:
        with tempfile.TemporaryDirectory(prefix="weft-gpu-") as folder:
            _Run(options, host, found, budget, Path(folder)).all()
    except _TimeUp:
        up = True
    except (NotReady, EngineError, ProbeError, httpx.HTTPError, ValueError, ImportError) as error:
        print(f"weft bench gpu: {error}", file=sys.stderr)
        failed = True
    except KeyboardInterrupt:
        return 130
    report.show(found.cells, label(host, options.shape))
    print("; ".join(f"{name} {value}" for name, value in found.versions.items() if value))
    left = remaining(options, found)
    if left or up:
        print(f"{len(left)} cells are left; the same command with the same --json goes on")
    failed = failed or any(values["errors"] for values in found.cells.values())
    return 1 if failed else CELLS_LEFT if left or up else 0


def label(host: Host, shape: str) -> str:
    """What every table is headed with: figures of a CPU never look like those of a GPU."""
    return f"{host.gpu.name if host.gpu is not None else 'CPU, no GPU'}, {shape}"


def configuration(options: GpuOptions) -> dict[str, Any]:
    """What all cells of one file have alike."""
    return {
        "device": options.device,
        "shape": options.shape,
        **asdict(options.engine),
        **asdict(options.scene),
    }


def remaining(options: GpuOptions, found: Results) -> list[Cell]:
    """The selected cells of which there are no figures, or of which programs failed, in the order
    of playing."""
    order = [system for system in PLAYED if system in options.systems]
    wanted = cells(order, options.workloads, options.loads)
    return [cell for cell in wanted if found.cells.get(cell.key, {"errors": 1})["errors"]]


def sessions(options: GpuOptions, found: Results) -> list[tuple[str, list[Cell]]]:
    """Which engines are started for which cells. Where the capacity of a workload is not known yet,
    the system that measures it comes first."""
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
    budget: Budget
    folder: Path

    def all(self) -> None:
        """Every session; then the fit, if it is asked for and not there yet."""
        planned = sessions(self.options, self.found)
        if planned:
            print(plan(self.options, planned), flush=True)
        fit_file = Path(self.options.fit_file)
        fitting = bool(self.options.fit_file) and not fit_file.exists()
        model = self.folder / "model"
        if planned or fitting:
            write(model, self.options.shape, self.options.engine.context)
        for system, part in planned:
            # An engine that is started and has no time left to play is of no use.
            self._needs(self._start_s(system) + self.options.scene.longest_s + _BESIDE_S)
            print(f"starting {system} ...", flush=True)
            with started(
                SYSTEMS[system], self.options.engine, model, self.options.device,
                self._logs(system), self._wait_s(),
            ) as at:  # fmt: skip
                try:
                    asyncio.run(self._session(system, part, at))
                except httpx.HTTPError as error:
                    why = f"{system} does not answer ({error}): {cause(at.log)}"
                    raise EngineError(why) from None
        if fitting:
            self._needs(2 * self._start_s(OURS) + _FIT_S)
            fit_engine(
                SHAPES[self.options.shape], self.options.engine, model, self.options.device,
                self._logs("fit"), self._wait_s(), self.options.rounds, fit_file,
            )  # fmt: skip

    async def _session(self, system: str, part: Sequence[Cell], at: Started) -> None:
        scene = self.options.scene
        async with connect() as client:
            blocks, block_tokens = cache_of(await metrics(client, at.engine))
            self.found.engines[system] = {
                **asdict(SYSTEMS[system]),
                "start_s": round(at.start_s, 1),
                "kv_blocks": blocks,
                "block_tokens": block_tokens,
            }
            await warm_up(client, at, self.options.workloads[0], scene)
            if system == MEASURE:
                await self._measure(client, at)
            for cell in part:
                self._needs(scene.longest_s + _BESIDE_S)
                rate = cell.load * self.found.capacity[cell.workload]
                columns = (TextColumn("{task.description}: {task.completed:.0f} calls"),)
                with Progress(*columns, TimeElapsedColumn(), transient=True) as progress:
                    bar = progress.add_task(cell.key, total=None)
                    outcome = await play_cell(
                        client, at, cell.workload, rate, scene, SYSTEMS[system].tags,
                        lambda b=bar, p=progress: p.advance(b),  # type: ignore[misc]
                    )  # fmt: skip
                values = report.summarise(outcome)
                self.found.cells[cell.key] = values
                self._save()
                print(
                    f"{cell.key}: {values['programs']:.0f} programs, {values['cut']:.0f} cut, "
                    f"mean {values['response_mean']:.4g} s, {self._left()} left",
                    flush=True,
                )
                if len(errors := [e for r in outcome.play.programs for e in r.errors]):
                    print(f"error: {errors[0]}", file=sys.stderr)

    async def _measure(self, client: httpx.AsyncClient, at: Started) -> None:
        """The capacity for each workload that is selected and of which it is not known."""
        for workload in self.options.workloads:
            if workload in self.found.capacity:
                continue
            self._needs(self.options.calibration_s + _BESIDE_S)
            rate = await capacity(
                client, at, workload, self.options.scene, self.options.engine.slots,
                self.options.calibration_s,
            )  # fmt: skip
            if rate <= 0:
                raise EngineError(f"the engine made no tokens of {workload}: no capacity is known")
            self.found.capacity[workload] = rate
            self._save()
            print(f"{workload}: {MEASURE} takes {rate:.4g} programs/s", flush=True)

    def _needs(self, seconds: float) -> None:
        if not self.budget.fits(time.monotonic(), seconds):
            raise _TimeUp

    def _left(self) -> str:
        return f"{self.budget.left_s(time.monotonic()) / 60:.1f} min"

    def _start_s(self, system: str) -> float:
        known = self.found.engines.get(system, {}).get("start_s")
        return _START_SLACK * float(known) if known else _FIRST_START_S

    def _wait_s(self) -> float:
        return min(self.options.start_s, self.budget.left_s(time.monotonic()))

    def _logs(self, system: str) -> Path:
        logs = (Path(self.options.logs) if self.options.logs else self.folder) / system
        logs.mkdir(parents=True, exist_ok=True)
        return logs

    def _save(self) -> None:
        if self.options.json_file:
            store.save(Path(self.options.json_file), self.found)


def plan(options: GpuOptions, planned: Sequence[tuple[str, Sequence[Cell]]]) -> str:
    """What there is to do and how long it takes at most, in words."""
    number = sum(len(part) for _, part in planned)
    seconds = number * (options.scene.longest_s + _BESIDE_S)
    return (
        f"{number} cells on {len(planned)} engine starts: {seconds / 60:.1f} min at most beside "
        f"starts and calibration; this run has {options.minutes:g}"
    )
