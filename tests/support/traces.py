"""The format of a trace record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_bench.workloads.traces.files import FORMATS


def recognised(record: Mapping[str, Any]) -> str | None:
    """Return the name of the format that applies to a record, None for no format."""
    return next((f.name for f in FORMATS if f.fields <= record.keys()), None)
