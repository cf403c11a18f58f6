"""Explanations of workflows over files."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from weft_run.io.rows import Input
from weft_run.language.graph import Workflow
from weft_run.plan.explain import Explained, explain

# Rows that are tried; figures of more rows are scaled.
SAMPLE: Final = 1000


def explained(workflow: Workflow, path: Path, *, sample: int = SAMPLE) -> Explained:
    """Check a file and explain a workflow over its rows. Raises RowsError."""
    found = Input(path, {name: str(kind) for name, kind in workflow.inputs.items()})
    rows = found.scan().number
    tried = [row for _, row in islice(found.read(0, rows), sample)]
    return explain(workflow, tried, rows)
