"""Output of studies: terminal, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft_bench.report.figures import origin
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


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write a document, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
