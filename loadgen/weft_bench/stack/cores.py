"""Pins engines to separate cores for benches whose clients run on the same machine. Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
# vLLM's name of the process that schedules and, on a CPU, computes.
ENGINE: Final = "VLLM::EngineCore"


@contextmanager
def engines_apart(name: str = ENGINE) -> Iterator[bool]:
    """Pin engines to the first core of this process, and all other processes to the rest.

    This covers the descendants of this process and lasts until the block ends; then this process
    returns to its cores. Yields whether both sides had a core and an engine was found. Otherwise
    nothing moves.

    name: part of an engine's command line.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield False
        return
    mine = os.sched_getaffinity(0)
    first, *rest = sorted(mine)
    family = descendants(os.getpid())
    engines = [pid for pid in family if name in _command(pid)]
    if not rest or not engines:
        yield False
        return
    for pid in [os.getpid(), *family]:
        _move(pid, {first} if pid in engines else set(rest))
    try:
        yield True
    finally:
        _move(os.getpid(), mine)


def descendants(root: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            # The process may end during the read.
            with suppress(OSError, IndexError, ValueError):
                # The name, in parentheses, may contain any character.
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_text(errors="replace")
    return ""


def _move(pid: int, cores: set[int]) -> None:
    """Move all threads of a process to these cores."""
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)
