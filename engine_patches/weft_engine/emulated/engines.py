"""Engines by name: presets, or files of `weft bench fit`."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec

from weft_engine.emulated.presets import PRESETS, EngineShape, preset


def shapes(names: str, replicas: int, slots: int = 0, kv_blocks: int = 0) -> list[EngineShape]:
    """Return one engine for each replica: the comma-separated names, repeated in turn.

    slots, kv_blocks: replace the engine's own; 0 keeps them. Raises ValueError for a name that is
    neither a preset nor a file with an engine.
    """
    known = [find(name.strip()) for name in names.split(",") if name.strip()]
    if not known:
        raise ValueError("no engine given")
    return [
        replace(shape, slots=slots or shape.slots, kv_blocks=kv_blocks or shape.kv_blocks)
        for shape in islice(cycle(known), replicas)
    ]


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


def of_json(values: Any) -> EngineShape:
    """Return an engine from the JSON of its fields. Raises ValueError for other content."""
    try:
        return msgspec.convert(values, EngineShape)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
