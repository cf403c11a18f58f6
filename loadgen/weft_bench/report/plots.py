"""Plots as files: equal figures give equal files. Raises ImportError without matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def figure(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return a figure and its axes, row by row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, **options)
    return picture, axes


def save(picture: Any, path: Path, title: str) -> None:
    """Write and close the picture, in the format of the path's suffix."""
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
