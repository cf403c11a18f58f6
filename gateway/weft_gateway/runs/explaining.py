"""Explanations of workflows over files, with the costs of running engines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import httpx

from weft_gateway.engine.described import costs_of_replica
from weft_gateway.runs.caller import able_replicas
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


def replicas_of(gateway: str) -> list[Replica]:
    """Ask a gateway for the costs of its replicas' steps. Raises JobError if it does not answer."""
    base = gateway.rstrip("/").removesuffix("/v1")
    try:
        answer = httpx.get(f"{base}/health", timeout=_WITHIN_S, trust_env=False).json()
    except (httpx.HTTPError, httpx.InvalidURL, OverflowError, ValueError) as error:
        raise JobError(f"{gateway} cannot be used: {error or type(error).__name__}") from None
    found = []
    for one in able_replicas(answer if isinstance(answer, dict) else {}):
        costs = costs_of_replica(one)
        if costs is not None:
            models = one.get("models")
            names = frozenset(map(str, models)) if isinstance(models, list) else frozenset()
            found.append(Replica(str(one.get("name")), costs, names))
    return found
