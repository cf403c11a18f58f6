"""Output of studies: terminal, Markdown and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft_bench.report.figures import origin
from weft_bench.report.rows import markdown as table
from weft_bench.report.rows import print_table
from weft_bench.studies.cells import Measured
from weft_bench.studies.experiment import Experiment
from weft_bench.studies.store import ROOT


def views(experiment: Experiment, measured: Measured) -> dict[str, Any]:
    """Return the headline, tables and findings derived from the cells."""
    headline = experiment.headline(measured)
    scores = [
        {"name": one.name, "shown": one.shown, "outcome": one.outcome} for one in headline.scores
    ]
    return {
        "headline": {
            "what": headline.what,
            "scores": scores,
            "published": headline.published,
            "rival": headline.rival,
        },
        "tables": [asdict(one) for one in experiment.tables(measured)],
        "findings": [*experiment.notes, *map(str, experiment.goals(measured))],
    }


def document(experiment: Experiment, measured: Measured, command: str) -> dict[str, Any]:
    """Return a run as JSON: the measured cells and everything derived from them."""
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "published": experiment.published,
        "kind": experiment.kind,
        "order": experiment.order,
        **origin(command, ROOT),
        **views(experiment, measured),
        "cells": measured.to_json(),
    }


def show(found: Mapping[str, Any]) -> None:
    """Print the tables of a document, then the notes and the published result."""
    for one in found["tables"]:
        print_table(f"{found['kind']}: {one['title']}", one["columns"], one["rows"], one["labels"])
    for note in found["findings"]:
        print(f"- {note}")
    if found["published"]:
        print(f"published ({found['source']}): {found['published']}")


def markdown(found: Mapping[str, Any], level: int = 2) -> str:
    """Return a page or a section for a document. level: of its heading."""
    measured = f", commit {found['commit']}" if found.get("commit") else ""
    parts = [
        f"{'#' * level} {found['title']}",
        f"`{found['command']}`, {found['kind']}, {found['date'][:10]}{measured}, "
        f"{found['machine']}.",
        f"Source: {found['source']}.",
    ]
    if found["published"]:
        parts.append(f"Published: {found['published']}.")
    for one in found["tables"]:
        parts.append(f"{found['kind'].capitalize()}: {one['title']}.")
        parts.append(table(one["columns"], one["rows"], one["labels"]))
    if found["findings"]:
        parts.append("\n".join(f"- {note}" for note in found["findings"]))
    return "\n\n".join(parts) + "\n"


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write a document, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _rest(missed: Sequence[str], met: Sequence[str] | None) -> Sequence[str]:
    if met is None:
        return [] if missed else ["all goals are met"]
    return met


def conclude(
    command: str,
    title: str,
    kind: str,
    tables: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    missed: Sequence[str],
    json_file: str,
    met: Sequence[str] | None = None,
) -> int:
    """Print the tables, write them with their cells, and list the missed goals.

    Returns the exit status: 1 if a goal is missed. met: sentences about the other goals; None if
    one sentence is enough. tables: in the format of `markdown`, so that
    the pages of results show the same ones.
    """
    document = {
        "title": title,
        "source": "a goal of this project",
        "published": "",
        "kind": kind,
        **origin(command, ROOT),
        "tables": list(tables),
        "findings": [*(f"missed: {one}" for one in missed), *_rest(missed, met)],
        "cells": list(cells),
    }
    show(document)
    print(document["machine"])
    if json_file:
        write(Path(json_file), document)
    name = " ".join(command.split()[:3])
    for one in missed:
        print(f"{name}: missed: {one}", file=sys.stderr)
    return 1 if missed else 0
