"""Plots as files: equal figures give equal files. Raises ImportError without matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def figure(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return a figure and its axes, row by row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained", **options
    )
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
    return picture, axes


def save(picture: Any, path: Path, title: str) -> None:
    """Write and close the picture, in the format of the path's suffix.

    The background is white, so that the picture is legible on light and dark pages.
    """
    import matplotlib
    from matplotlib import pyplot

    picture.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Text stays text. The hash salt makes the identifiers in the file the same in each run.
    options = {"svg.hashsalt": title, "svg.fonttype": "none"}
    metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else None
    with matplotlib.rc_context(options):
        picture.savefig(path, facecolor="white", metadata=metadata)
    pyplot.close(picture)
