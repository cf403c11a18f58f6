"""Process states and process trees on Linux, from /proc."""

from __future__ import annotations

from pathlib import Path


def _stat(pid: int) -> tuple[str, int] | None:
    """Return the state and the parent, or None if the process does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may contain any character.
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def descendants(pid: int) -> set[int]:
    """Return all descendants that are alive."""
    parents = {
        int(entry.name): stat[1]
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))) and stat[0] not in "ZX"
    }
    found: set[int] = set()
    level = {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level} - found
        found |= level
    return found
