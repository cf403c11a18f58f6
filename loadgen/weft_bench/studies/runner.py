"""Measures the cells of an experiment in parallel, each cell once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial

from weft_bench.studies.cells import Cell, Measured, Values
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.store import Store


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a run. taken: cells from the store. cpu_s: CPU seconds of the others."""

    measured: Measured
    taken: int
    cpu_s: float
    wall_s: float


def run(
    experiment: Experiment,
    quick: bool,
    store: Store | None,
    jobs: int,
    progress: Callable[[int, int], None],
) -> Run:
    """Measure the cells that the store lacks.

    progress: called with the completed and the total number of cells. Raises the errors of a cell,
    and those of signal handlers, after it ends the running cells. The store keeps the cells
    measured before.
    """
    begun = time.monotonic()
    cells = list(experiment.cells(quick))
    found: dict[Cell, Values] = {}
    for cell in cells:
        values = store.get(cell) if store else None
        if values is not None:
            found[cell] = values
    taken = len(found)
    open_cells = [cell for cell in cells if cell not in found]
    progress(taken, len(cells))
    cpu_s = 0.0
    if open_cells:
        jobs = 1 if experiment.exclusive else jobs
        for cell, values, used in _measure(experiment, open_cells, jobs):
            found[cell] = values
            cpu_s += used
            if store:
                store.put(cell, values)
            progress(len(found), len(cells))
    ordered = {cell: found[cell] for cell in cells}
    return Run(Measured(ordered), taken, cpu_s, time.monotonic() - begun)


def default_jobs() -> int:
    """Return one process for each usable core."""
    return len(os.sched_getaffinity(0))


def _measure(
    experiment: Experiment, cells: list[Cell], jobs: int
) -> Iterator[tuple[Cell, Values, float]]:
    # Imports of a simulation take seconds. One process imports them, and the workers fork from it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["weft_bench.studies.preload"])
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(cells)), context, initializer=_leave_to_parent)
    work = partial(_timed, experiment.measure)
    try:
        futures: dict[Future[tuple[Values, float]], Cell] = {pool.submit(work, c): c for c in cells}
        for future in as_completed(futures):
            values, used = future.result()
            yield futures[future], values, used
    except BaseException:
        # A cell may take minutes, so running cells are killed.
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_to_parent() -> None:
    """Ignore Ctrl-C. It reaches all processes of a terminal, and only the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _timed(measure: Callable[[Cell], Values], cell: Cell) -> tuple[Values, float]:
    begun = time.process_time()
    values = measure(cell)
    return values, time.process_time() - begun
