"""YAML files of limited size, and the parts of error messages: places, reasons, nearest names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import yaml

KeyPath = tuple[str | int, ...]

_REASONS: Final = {
    "list_type": "must be a list",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "extra_forbidden": "unknown key",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
}
MAX_BYTES: Final = 4 * 2**20
# Aliases repeat parts of a file: this many nodes, repetitions included, are read.
MAX_NODES: Final = 200_000


class UnreadableError(ValueError):
    """A text is not valid YAML, or too large. place: line and column, from 1, if they are known."""

    def __init__(self, what: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(what)
        self.place = place


def read(text: str, loader: type[Any]) -> tuple[yaml.Node | None, Any]:
    """Return the nodes and the value of a YAML text. Raises UnreadableError with one line.

    loader: a class of PyYAML's loaders.
    """
    if len(text) > MAX_BYTES:
        raise UnreadableError(f"larger than {MAX_BYTES // 2**20} MiB")
    try:
        root = yaml.compose(text, Loader=loader)
        _count(root, [0], ())
        return root, loader("").construct_document(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        place = None if error.problem_mark is None else _place(error.problem_mark)
        raise UnreadableError(f"not valid YAML: {error.problem}", place) from None
    except (yaml.YAMLError, ValueError) as error:
        what = " ".join(str(error).split())
        raise UnreadableError(f"not valid YAML: {what}") from None
    except RecursionError:
        raise UnreadableError("nested too deeply") from None


def _count(node: yaml.Node | None, seen: list[int], around: tuple[int, ...]) -> None:
    """Refuse aliases that contain themselves, and those that make a small file large."""
    seen[0] += 1
    if seen[0] > MAX_NODES:
        raise ValueError(f"more than {MAX_NODES} values")
    if id(node) in around:
        raise ValueError("an alias contains itself")
    inside = (*around, id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _count(key, seen, inside)
            _count(value, seen, inside)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _count(value, seen, inside)


def _place(found: yaml.Mark) -> tuple[int, int]:
    return found.line + 1, found.column + 1


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?`, or the known names if none is close, "" without names."""
    names = list(known)
    return close(name, names) or (f"; known: {', '.join(names)}" if names else "")


def close(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?`, "" if no known name is close."""
    found = get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def dotted(path: KeyPath) -> str:
    """Return a path as the beginning of a message, for example `ops.a.llm: `."""
    names = [str(part) for part in path]
    # A message has one line.
    shown = [name if name and name.isprintable() else ascii(name) for name in names]
    return f"{'.'.join(shown)}: " if shown else ""


def reason(error: Mapping[str, Any], mapping: str = "a mapping") -> str:
    """Return the reason of an error of pydantic. mapping: what the format calls a mapping."""
    kind = error["type"]
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"must be {mapping}"
    return _REASONS.get(kind) or str(error["msg"]).removeprefix("Value error, ")


def mark(node: yaml.Node | None, path: KeyPath) -> tuple[int, int]:
    """Return (line, column), both from 1, of the key or item at a path, or of the part that should
    contain it. Of a key that occurs twice, the place of the last one.
    """
    found = 1, 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if pair[0].value == part]
            if not pairs:
                return found
            key, node = pairs[-1]
            found = _place(key.start_mark)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            found = _place(node.start_mark)
        else:
            return found
    return found


def at(node: yaml.Node | None, path: KeyPath) -> yaml.Node | None:
    """Return the node at a path, None if the file has no such part."""
    for part in path:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part] if part < len(node.value) else None
        else:
            return None
    return node


def duplicates(node: yaml.Node | None, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield the keys that occur twice in a mapping. YAML would use the last one."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from duplicates(item, (*path, index))
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if not isinstance(key.value, str):
                continue
            if key.value in seen:
                yield (*path, key.value), "the key occurs twice"
            seen.add(key.value)
            yield from duplicates(value, (*path, key.value))
