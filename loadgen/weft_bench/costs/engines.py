"""Engines by name: presets, or files of `weft bench fit`."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from weft_bench.costs.model import CostModel
from weft_bench.costs.presets import PRESETS, EngineShape, preset

_COUNTS: Final = ("slots", "step_tokens", "kv_blocks", "block_tokens", "block_bytes", "context")


def shapes(names: str, replicas: int, slots: int = 0, kv_blocks: int = 0) -> list[EngineShape]:
    """Return one engine for each replica: the comma-separated names, repeated in turn.

    slots, kv_blocks: replace the engine's own; 0 keeps them. Raises ValueError for a name that is
    neither a preset nor a file with an engine.
    """
    known = [find(name.strip()) for name in names.split(",") if name.strip()]
    if not known:
        raise ValueError("no engine given")
    found = []
    for number in range(replicas):
        shape = known[number % len(known)]
        found.append(
            replace(shape, slots=slots or shape.slots, kv_blocks=kv_blocks or shape.kv_blocks)
        )
    return found


def find(name: str) -> EngineShape:
    """Return the preset with this name, or the engine in a file. Raises ValueError."""
    path = Path(name)
    if name in PRESETS or not path.is_file():
        return preset(name)
    try:
        document = json.loads(path.read_text())
        return of_json(document["engine"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name} does not contain an engine: {error!r}") from None


def to_json(shape: EngineShape) -> dict[str, Any]:
    """Return the engine as JSON for `of_json`."""
    return asdict(shape)


def of_json(values: Any) -> EngineShape:
    """Return an engine from parsed JSON. Raises KeyError, TypeError or ValueError for other
    content.
    """
    shape = EngineShape(**{**values, "cost": CostModel(**values["cost"])})
    for name in _COUNTS:
        value = getattr(shape, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if not shape.call_s >= 0:
        raise ValueError(f"call_s must not be negative, got {shape.call_s!r}")
    return shape
