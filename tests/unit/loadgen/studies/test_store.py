"""The store of measurements, addressed by content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from weft_bench.studies.cells import Cell, Values, cells
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.store import ROOT, Store, code_digest


def _measure(cell: Cell) -> Values:
    return {"x": float(cell.seed)}


_EXPERIMENT = Experiment(
    name="one",
    title="",
    source="",
    published="",
    cells=lambda quick: cells(2, a=1),
    measure=_measure,
    tables=lambda found: (),
    code=("loadgen/weft_bench/stats.py",),
)


def test_stored_values_are_found(tmp_path: Path) -> None:
    one, two = cells(2, a=1)
    Store(_EXPERIMENT, tmp_path).put(one, {"x": 1.5})
    store = Store(_EXPERIMENT, tmp_path)
    assert store.get(one) == {"x": 1.5}
    assert store.get(two) is None
    assert store.get(cells(1, a=2)[0]) is None


def test_changed_code_makes_values_stale(tmp_path: Path) -> None:
    (one,) = cells(1, a=1)
    Store(_EXPERIMENT, tmp_path).put(one, {"x": 1.5})
    assert (
        Store(
            replace(_EXPERIMENT, code=("loadgen/weft_bench/workloads/streams.py",)), tmp_path
        ).get(one)
        is None
    )


def test_invalid_file_is_ignored(tmp_path: Path) -> None:
    (one,) = cells(1, a=1)
    store = Store(_EXPERIMENT, tmp_path)
    store.put(one, {"x": 1.5})
    for text in ("", "[]", '{"values": 3}', '{"values": {"x": "many"}}'):
        for file in tmp_path.rglob("*.json"):
            file.write_text(text)
        assert store.get(one) is None


def test_digest_depends_on_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    file = tmp_path / "code" / "a.py"
    file.write_text("x = 1\n")
    first = code_digest(("code",), tmp_path)
    assert code_digest(("code", "code"), tmp_path) == first
    file.write_text("x = 2\n")
    changed = code_digest(("code",), tmp_path)
    file.rename(tmp_path / "code" / "b.py")
    assert len({first, changed, code_digest(("code",), tmp_path)}) == 3


def test_missing_code_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        code_digest(("loadgen/weft_bench/nothing.py",), ROOT)
