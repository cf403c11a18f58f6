"""Experiments shown: tables on a terminal, in Markdown and in JSON, plots as SVG."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table as RichTable

from weft_bench.experiments.experiment import Experiment, Plot
from weft_bench.experiments.runner import Run
from weft_bench.experiments.store import ROOT
from weft_bench.report.figures import commit, machine
from weft_bench.report.summary import summary

# Marks differ by shape, so that lines are told apart without colour too.
_MARKS: Final = "osD^vPX*"


def document(experiment: Experiment, run: Run, command: str) -> dict[str, Any]:
    """All of a run as JSON: what was measured, cell by cell, and what is made of it."""
    measured = run.measured
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "published": experiment.published,
        "kind": experiment.kind,
        "command": command,
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(ROOT),
        "headline": asdict(experiment.headline(measured)),
        "tables": [asdict(table) for table in experiment.tables(measured)],
        "findings": list(experiment.findings(measured)),
        "cells": [
            {"settings": dict(cell.settings), "seed": cell.seed, "values": dict(values)}
            for cell, values in measured.values.items()
        ],
    }


def show(found: Mapping[str, Any], console: Console) -> None:
    """Print the tables of a document as wide as they need to be, then what the paper says."""
    for table in found["tables"]:
        title = f"{found['kind']}: {table['title']}"
        console.print(title, highlight=False, soft_wrap=True)
        shown = RichTable()
        for number, column in enumerate(table["columns"]):
            shown.add_column(column, justify="left" if number < table["labels"] else "right")
        for row in table["rows"]:
            shown.add_row(*row)
        needed = Console(width=400).measure(shown).maximum
        Console(file=console.file, width=max(console.width, needed)).print(shown)
    for finding in found["findings"]:
        console.print(f"- {finding}", highlight=False, soft_wrap=True)
    if found["published"]:
        console.print(f"published ({found['source']}): {found['published']}", soft_wrap=True)


def markdown(found: Mapping[str, Any], image: str = "") -> str:
    """A section of `docs/results.md` from a document. image: a plot's path beside that file."""
    lines = [f"## {found['title']}", ""]
    measured = f", commit {found['commit']}" if found.get("commit") else ""
    lines += [
        f"`{found['command']}`, {found['kind']}, {found['date'][:10]}{measured}, "
        f"{found['machine']}.",
        "",
    ]
    lines += [f"Source: {found['source']}.", ""]
    if found["published"]:
        lines += [f"Published: {found['published']}.", ""]
    for table in found["tables"]:
        lines += [f"{found['kind'].capitalize()}: {table['title']}.", "", *_rows(table), ""]
    if found["findings"]:
        lines += [*(f"- {finding}" for finding in found["findings"]), ""]
    if image:
        lines += [f"![{found['title']}]({image})", ""]
    return "\n".join(lines)


def page(
    sections: Sequence[str],
    others: Sequence[Mapping[str, Any]],
    missing: Sequence[str] = (),
    documents: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole page. others: what commands of their own have written, as `write_json` does, each
    with a `file`. missing: experiments without figures. documents: of the experiments, for the
    summary at its top."""
    head = """# Results

Written by `weft bench all`; `weft bench list` says what there is, `weft bench run NAME` measures
one again. A figure as `1.23 ± 0.04` is a mean over seeds with half of its 95% confidence interval;
`122 [46 to 220]` the mean, the least and the greatest seed, where that interval would reach below
zero. A ratio as `1.16 (0.92 to 1.46)` is the geometric mean over pairs of the same seed, which
played the same programs at the same times, with its 95% interval. What is simulated says so, and
stands in no table with what was measured on a real engine: [simulator](simulator.md) says what that
is worth. No GPU was measured.
"""
    lines = [head, *summary(documents), *sections]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        lines += [f"## Open\n\nNot measured yet: {names}.\n"]
    if others:
        rule = ("---", "---", "---", "---")
        rows = [
            (f"`{one['command']}`", f"`{one['file']}`", one["date"][:10], one["machine"])
            for one in others
        ]
        title = "## Measured by commands of their own\n"
        columns = ("command", "figures", "date", "machine")
        lines += [title, *(_line(row) for row in (columns, rule, *rows)), ""]
    return "\n".join(lines)


def _rows(table: Mapping[str, Any]) -> list[str]:
    rule = ["---" if n < table["labels"] else "---:" for n in range(len(table["columns"]))]
    return [_line(row) for row in (table["columns"], rule, *table["rows"])]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write a document; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def draw(path: Path, plots: Sequence[Plot], title: str) -> None:
    """Write the plots below each other into one SVG. ImportError where matplotlib is missing."""
    import matplotlib

    matplotlib.use("Agg")
    # Equal figures give equal files.
    matplotlib.rcParams["svg.hashsalt"] = title
    from matplotlib import pyplot

    columns = max(len(plot.panels) for plot in plots)
    size = (4.2 * columns, 3.4 * len(plots))
    figure, axes = pyplot.subplots(len(plots), columns, figsize=size, squeeze=False)
    for row, plot in zip(axes, plots, strict=True):
        for axis in row[len(plot.panels) :]:
            axis.axis("off")
        for axis, (name, lines) in zip(row, plot.panels, strict=False):
            for mark, line in zip(_MARKS * len(lines), lines, strict=False):
                middles = [one.middle for one in line.y]
                # matplotlib wants how far the ends lie below and above.
                ends = [
                    [one.middle - one.ends()[0] for one in line.y],
                    [one.ends()[1] - one.middle for one in line.y],
                ]
                axis.errorbar(line.x, middles, ends, label=line.label, marker=mark, capsize=2)
            axis.set(title=name, xlabel=plot.x, ylabel=plot.y)
            axis.grid(alpha=0.3)
            if plot.log_y:
                axis.set_yscale("log")
        row[0].legend(fontsize="small")
    figure.suptitle(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
