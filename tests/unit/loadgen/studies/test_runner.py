"""Each cell is measured once, in a separate process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.measuring import seed_and_process
from weft_bench.studies.cells import cells
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.runner import run
from weft_bench.studies.store import Store

_EXPERIMENT = Experiment(
    name="one",
    title="",
    source="",
    published="",
    cells=lambda quick: cells(1 if quick else 3, what="works"),
    measure=seed_and_process,
    tables=lambda found: (),
    code=("loadgen/weft_bench/stats.py",),
)


@pytest.mark.slow
def test_each_cell_is_measured_once_and_then_stored(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    store = Store(_EXPERIMENT, tmp_path)
    first = run(_EXPERIMENT, False, store, 2, lambda done, of: progress.append((done, of)))
    assert first.measured.series("seed") == {0: 0.0, 1: 1.0, 2: 2.0}
    assert os.getpid() not in first.measured.series("process").values()
    assert (first.taken, progress) == (0, [(0, 3), (1, 3), (2, 3), (3, 3)])
    again = run(_EXPERIMENT, False, store, 2, lambda done, of: None)
    assert (again.taken, again.cpu_s) == (3, 0.0)
    assert again.measured.values == first.measured.values


@pytest.mark.slow
def test_cells_are_measured_without_a_store() -> None:
    found = run(_EXPERIMENT, True, None, 1, lambda done, of: None)
    assert (found.taken, len(found.measured.values)) == (0, 1)


@pytest.mark.slow
def test_failure_is_raised_and_measured_cells_are_kept(tmp_path: Path) -> None:
    failing = replace(
        _EXPERIMENT, cells=lambda quick: [*cells(1, what="works"), *cells(1, what="fails")]
    )
    store = Store(failing, tmp_path)
    with pytest.raises(RuntimeError, match="no luck"):
        run(failing, False, store, 1, lambda done, of: None)
    assert store.get(cells(1, what="works")[0]) is not None
