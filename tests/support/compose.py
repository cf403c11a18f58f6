"""Reads compose files like Compose: `!reset`, override files, and variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_RESET = object()
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z0-9_]+)(?::(?P<how>[-?])(?P<rest>[^}]*))?\}")
# A later file replaces these lists instead of adding to them.
_REPLACED = frozenset({"command", "entrypoint", "test"})


class _Loader(yaml.SafeLoader):
    """A safe loader with Compose's tag for values that an override removes."""


_Loader.add_constructor("!reset", lambda *_: _RESET)


def load(*files: Path) -> dict[str, Any]:
    """Return the files merged, each over the previous ones. Variables are not replaced."""
    merged: dict[str, Any] = {}
    for file in files:
        merged = _merge(merged, yaml.load(file.read_text(), _Loader))
    return merged


def variables(file: Path) -> set[str]:
    """Return the names of all variables that a file takes from its environment."""
    return {match["name"] for match in _VARIABLE.finditer(_without_comments(file))}


def interpolate(value: Any, environment: Mapping[str, str]) -> Any:
    """Replace variables. Raise KeyError with the name of a required one that is unset or empty."""
    if isinstance(value, dict):
        return {key: interpolate(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        given = environment.get(match["name"], "")
        if given or match["how"] is None:
            return given
        if match["how"] == "?":
            raise KeyError(match["name"])
        return match["rest"]

    return _VARIABLE.sub(put, value)


def _without_comments(file: Path) -> str:
    return "\n".join(line.partition("# ")[0] for line in file.read_text().splitlines())


def _merge(base: Any, over: Any, key: str = "") -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        merged = dict(base)
        for name, value in over.items():
            if value is _RESET:
                merged.pop(name, None)
            else:
                merged[name] = _merge(base.get(name), value, name)
        return merged
    if isinstance(base, list) and isinstance(over, list) and key not in _REPLACED:
        return [*base, *(item for item in over if item not in base)]
    return over
