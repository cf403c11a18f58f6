"""Output of a comparison: tables on the terminal, and a file with the tables and their cells."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from weft_bench.report.figures import origin
from weft_bench.report.rows import print_table

_ROOT: Final = Path(__file__).resolve().parents[3]


def show(found: Mapping[str, Any]) -> None:
    """Print the tables of a document, then the findings."""
    for one in found["tables"]:
        print_table(f"{found['kind']}: {one['title']}", one["columns"], one["rows"], one["labels"])
    for note in found["findings"]:
        print(f"- {note}")


def conclude(
    command: str,
    title: str,
    kind: str,
    tables: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    missed: Sequence[str],
    json_file: str,
) -> int:
    """Print the tables, write them with their cells, and list what was missed.

    Returns the exit status: 1 if anything was missed.
    """
    document = {
        "title": title,
        "kind": kind,
        **origin(command, _ROOT),
        "tables": list(tables),
        "findings": [f"missed: {one}" for one in missed],
        "cells": list(cells),
    }
    show(document)
    print(document["machine"])
    if json_file:
        path = Path(json_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    name = " ".join(command.split()[:3])
    for one in missed:
        print(f"{name}: missed: {one}", file=sys.stderr)
    return 1 if missed else 0
