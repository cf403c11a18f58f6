"""Measures the cells of a study in parallel processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from weft_bench.studies.cells import Cell, Measured, Values
from weft_bench.studies.study import Study


def run(
    study: Study, cells: Sequence[Cell], jobs: int, progress: Callable[[int, int], None]
) -> Measured:
    """Measure these cells of a study.

    jobs: processes, 0 for one a core. progress: called with the completed and the total number of
    cells. Raises the errors of a cell, and those of signal handlers, after it ends the running
    cells.
    """
    # Imports of a simulation take seconds. One process imports them, and the workers fork from it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["weft_bench.studies.preload"])
    others = set(multiprocessing.active_children())
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(cells))
    pool = ProcessPoolExecutor(jobs, context, initializer=_leave_to_parent)
    found: dict[Cell, Values] = {}
    try:
        futures: dict[Future[Values], Cell] = {pool.submit(_measure, study, c): c for c in cells}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            progress(len(found), len(cells))
    except BaseException:
        # A cell may take minutes, so running cells are killed.
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return Measured({cell: found[cell] for cell in cells})


def _leave_to_parent() -> None:
    """Ignore Ctrl-C. It reaches all processes of a terminal, and only the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _measure(study: Study, cell: Cell) -> Values:
    from weft_bench.studies.metrics import measure

    return measure(study, cell)
