"""Plots as files: equal figures give equal files. ImportError where matplotlib is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def figure(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, row by row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, **options)
    return picture, axes


def save(picture: Any, path: Path, title: str) -> None:
    """Write and close it, in the format that the path ends with."""
    import matplotlib
    from matplotlib import pyplot

    for axis in picture.axes:
        axis.grid(alpha=0.3)
    picture.suptitle(title)
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": title}):
        picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(picture)
