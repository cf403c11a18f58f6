"""Explanations of workflows over files, with the costs of running engines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import httpx

from weft_gateway.engine.described import engine_costs
from weft_gateway.runs.errors import JobError
from weft_gateway.runs.rows import Input
from weft_gateway.workflows.costs import Replica
from weft_gateway.workflows.explain import Explained, explain
from weft_gateway.workflows.graph import Workflow

# Rows that are tried; figures of more rows are scaled.
SAMPLE: Final = 1000
_WITHIN_S: Final = 10.0


def explained(
    workflow: Workflow, path: Path, *, sample: int = SAMPLE, replicas: Sequence[Replica] = ()
) -> Explained:
    """Check a file and explain a workflow over its rows. Raises RowsError."""
    found = Input(path, {name: str(kind) for name, kind in workflow.inputs.items()})
    rows = found.scan().number
    tried = [row for _, row in islice(found.read(0, rows), sample)]
    return explain(workflow, tried, rows, replicas)


def replicas_of(urls: Sequence[str]) -> list[Replica]:
    """Ask engines for the costs of their steps. Raises JobError if one reports none."""
    found = []
    for url in urls:
        base = url.rstrip("/").removesuffix("/v1")
        try:
            answer = httpx.get(f"{base}/weft/state", timeout=_WITHIN_S).raise_for_status().json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise JobError(f"{url}: no costs: {error or type(error).__name__}") from None
        costs = engine_costs(answer) if isinstance(answer, dict) else None
        if costs is None:
            raise JobError(f"{url}: no costs: it has no plugin of Weft, or served no calls yet")
        found.append(Replica(url, costs))
    return found
