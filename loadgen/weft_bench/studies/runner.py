"""Runs simulations in parallel processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def run(
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    jobs: int,
    done: Callable[[_Task, _Result], None],
    *,
    preload: bool = True,
) -> None:
    """Call a function, which must be importable, with each of these tasks.

    jobs: processes, 0 for one a core. done: called in this process with each task and its result,
    in the order of completion. preload: the processes share imports of vLLM. Raises the errors of a
    task, and those of signal handlers, after it ends the running ones.
    """
    # Imports of a simulation take seconds. One process imports them, and the workers fork from it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["weft_bench.studies.preload"] if preload else [])
    others = set(multiprocessing.active_children())
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(tasks))
    pool = ProcessPoolExecutor(jobs, context, initializer=_leave_to_parent)
    try:
        futures: dict[Future[_Result], _Task] = {pool.submit(function, t): t for t in tasks}
        for future in as_completed(futures):
            done(futures[future], future.result())
    except BaseException:
        # A task may take minutes, so running ones are killed.
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_to_parent() -> None:
    """Ignore Ctrl-C. It reaches all processes of a terminal, and only the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
