"""Measuring functions for tests of experiments. Worker processes have to import them."""

from __future__ import annotations

import os
import signal

from weft_bench.studies.cells import Cell, Values


def seed_and_process(cell: Cell) -> Values:
    """Return the cell's seed and the process ID. Raise RuntimeError if `what` is "fails"."""
    if cell.text("what") == "fails":
        raise RuntimeError("no luck")
    return {"seed": float(cell.seed), "process": float(os.getpid())}


def rise(cell: Cell) -> Values:
    """Return 2 plus the seed as `x`. Raise ValueError if `what` is "fails"."""
    if cell.text("what") == "fails":
        raise ValueError("no such engine")
    return {"x": 2.0 + cell.seed}


def hang(cell: Cell) -> Values:
    """Return at once if the seed is 0. Otherwise run until SIGKILL."""
    if cell.seed:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        while True:
            signal.pause()
    return {"x": 0.0}
