"""Finishes a bench that has goals: tables, file and exit status."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft_bench.report import page as report
from weft_bench.report.figures import origin
from weft_bench.studies.store import ROOT


def conclude(
    command: str,
    title: str,
    kind: str,
    tables: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    missed: Sequence[str],
    json_file: str,
) -> int:
    """Print the tables, write them with their cells, and list the missed goals.

    Returns the exit status: 1 if a goal is missed. tables: in the format of `page.markdown`, so
    that the results page shows the same ones.
    """
    document = {
        "title": title,
        "source": "a goal of this project",
        "published": "",
        "kind": kind,
        **origin(command, ROOT),
        "tables": list(tables),
        "findings": [f"missed: {one}" for one in missed] or ["all goals are met"],
        "cells": list(cells),
    }
    report.show(document)
    print(document["machine"])
    if json_file:
        report.write(Path(json_file), document)
    name = " ".join(command.split()[:3])
    for one in missed:
        print(f"{name}: missed: {one}", file=sys.stderr)
    return 1 if missed else 0
