"""What is warned of, and keeping queues in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

compat = pytest.importorskip("engine_patches.compat", exc_type=ImportError)


def test_a_foreign_package_named_kernels_is_warned_of(tmp_path, monkeypatch):
    assert compat.warn_of_kernels_package() == ""
    info = tmp_path / "kernels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "pip uninstall kernels" in compat.warn_of_kernels_package()


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40),
    st.lists(st.integers(0, 4), max_size=3),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_putting_what_moved_into_place_is_sorting(settled, put_first, put_last):
    """Some changed their rank where they stand, some were put before all, some after all."""
    ranks: dict[str, tuple[int, float, int]] = {}
    moved: set[str] = set()
    queue: list[Any] = []
    for place, (before, moves) in enumerate(sorted(settled)):
        name = f"s{place}"
        # Who moves gets a rank that has nothing to do with its place.
        ranks[name] = ((before * 7 + place) % 5 if moves else before, 0.0, place)
        moved |= {name} if moves else set()
        queue.append(SimpleNamespace(request_id=name))
    for front, rank_ in [*((True, r) for r in put_first), *((False, r) for r in put_last)]:
        name = f"n{len(queue)}"
        ranks[name] = (rank_, 0.0, len(queue))
        moved.add(name)
        queue.insert(0 if front else len(queue), SimpleNamespace(request_id=name))
    found = compat.rearranged(queue, ranks.__getitem__, moved)
    assert found == sorted(queue, key=lambda r: ranks[r.request_id])
    assert len(found) == len(queue)
