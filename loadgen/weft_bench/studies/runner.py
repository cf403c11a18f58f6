"""Measures the cells of an experiment, several at a time, each once."""

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
    """What a run brought. taken: cells that had been measured before. cpu_s: of the others."""

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
    """Measure what the store does not have. progress: is told how many cells are done, of how many.

    Whatever a cell raises is raised here, with the cells that run ended at once, and so is what a
    signal's handler raises; what was measured until then stays in the store.
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
    """One process a core that this process may use."""
    return len(os.sched_getaffinity(0))


def _measure(
    experiment: Experiment, cells: list[Cell], jobs: int
) -> Iterator[tuple[Cell, Values, float]]:
    # What a simulation imports takes seconds: one process imports it, and the others are its forks.
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
        # A cell may take minutes: those at hand are not waited for.
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_to_parent() -> None:
    """Ctrl-C reaches all processes of a terminal: only the parent answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _timed(measure: Callable[[Cell], Values], cell: Cell) -> tuple[Values, float]:
    begun = time.process_time()
    values = measure(cell)
    return values, time.process_time() - begun
