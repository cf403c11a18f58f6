"""Places in YAML files, for error messages: file:line:column, and the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import yaml

KeyPath = tuple[str | int, ...]


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
    return f"{'.'.join(map(str, path))}: " if path else ""


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
            found = key.start_mark.line + 1, key.start_mark.column + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            found = node.start_mark.line + 1, node.start_mark.column + 1
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
