"""Functions that measure, for experiments of tests: processes that measure must be able to import
them."""

from __future__ import annotations

import os

from loadgen.experiments.cells import Cell, Values


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
