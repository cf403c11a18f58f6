"""`weft bench study`: measures a study, and prints and writes its tables."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from weft_bench.report.figures import origin, refuse
from weft_bench.report.rows import markdown, print_table
from weft_bench.studies.cells import Cell, Measured, Values
from weft_bench.studies.runner import run as run_all
from weft_bench.studies.study import Study, load, names
from weft_bench.studies.tables import Made, tables

_ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """Options of the command; see its --help. name: empty to list the studies."""

    name: str
    quick: bool
    seeds: int
    jobs: int
    json_file: str
    page: str


def run(options: StudyOptions) -> int:
    """Measure a study, or list the studies. Call it in the main thread, which gets the signals.

    Returns the exit status: 1 if a measurement fails, 2 for an unknown study, an invalid file or a
    missing dependency. SIGINT and SIGTERM end it at once.
    """
    try:
        if not options.name:
            for name in names():
                one = load(name)
                print(f"{name:20} {one.title} ({one.source})")
            return 0
        study = load(options.name)
        cells = study.cells(options.quick)
    except ValueError as error:
        return refuse("study", error)
    if options.seeds:
        cells = [cell for cell in cells if cell.seed < options.seeds]
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task(study.name, total=len(cells))
            values: dict[Cell, Values] = {}

            def done(cell: Cell, its: Values) -> None:
                values[cell] = its
                progress.advance(bar)

            run_all(partial(_measure, study), cells, options.jobs, done)
            found = Measured({cell: values[cell] for cell in cells})
    except ImportError as error:
        return refuse("study", f"vLLM is required: {error}")
    except (RuntimeError, ValueError, OSError) as error:
        print(f"weft bench study: {study.name}: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    _write(study, found, options)
    return 0


def _measure(study: Study, cell: Cell) -> Values:
    # Imports vLLM.
    from weft_bench.studies.metrics import measure

    return measure(study, cell)


def _write(study: Study, found: Measured, options: StudyOptions) -> None:
    command = f"weft bench study {study.name}"
    command += " --quick" if options.quick else ""
    command += f" --seeds {options.seeds}" if options.seeds else ""
    told = origin(command, _ROOT)
    made = tables(study, found)
    for one in made:
        print_table(f"simulated: {one.title}", one.columns, one.rows, one.labels)
    if study.published:
        print(f"published ({study.source}): {study.published}")
    if options.json_file:
        document = {
            "study": study.name,
            **told,
            "tables": [one._asdict() for one in made],
            "cells": found.to_json(),
        }
        text = json.dumps(document, indent=1, ensure_ascii=False)
        Path(options.json_file).write_text(f"{text}\n")
    if options.page:
        Path(options.page).write_text(page(study, made, told))


def page(study: Study, made: list[Made], told: dict[str, str]) -> str:
    """Return a page in Markdown. told: the command, machine, date and commit of the run."""
    measured = f", commit {told['commit']}" if told.get("commit") else ""
    parts = [
        f"# {study.title}",
        f"`{told['command']}`, in virtual time, {told['date'][:10]}{measured}. "
        f"Source: {study.source}.",
        f"Published: {study.published}." if study.published else "",
    ]
    for one in made:
        title = f"{one.title[0].upper()}{one.title[1:]}:"
        parts += [title, markdown(one.columns, one.rows, one.labels)]
    parts.append("\n".join(f"- {note}" for note in study.notes))
    return "\n\n".join(filter(None, parts)) + "\n"
