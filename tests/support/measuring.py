"""Functions that measure, for experiments of tests: processes that measure must be able to import
them."""

from __future__ import annotations

import os
import signal

from weft_bench.studies.cells import Cell, Values


def tell(cell: Cell) -> Values:
    """The cell's seed and the process; RuntimeError where `what` is "fails"."""
    if cell.text("what") == "fails":
        raise RuntimeError("no luck")
    return {"seed": float(cell.seed), "process": float(os.getpid())}


def rise(cell: Cell) -> Values:
    """`x` is 2 and the seed; ValueError where `what` is "fails"."""
    if cell.text("what") == "fails":
        raise ValueError("no such engine")
    return {"x": 2.0 + cell.seed}


def hang(cell: Cell) -> Values:
    """The seed where it is 0; else never ends, whatever else it is sent than a kill."""
    if cell.seed:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        while True:
            signal.pause()
    return {"x": 0.0}
