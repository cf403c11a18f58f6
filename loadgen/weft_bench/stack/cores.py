"""Engines on cores of their own, for benches whose clients share the machine with them. Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
# How vLLM calls the process that schedules and, on a CPU, computes.
ENGINE: Final = "VLLM::EngineCore"


@contextmanager
def engines_apart(name: str = ENGINE) -> Iterator[bool]:
    """Of the processes that this one has started, engines run on the first of its cores while the
    block runs, and all others, with this one, on the rest. Gives whether there was a core for each
    side and an engine; otherwise all stay where they are. This process goes back afterwards.

    name: what an engine's command line holds.
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
    """Ids of all processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            # It may end while it is looked at.
            with suppress(OSError, IndexError, ValueError):
                # The name, in brackets, may hold anything.
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
    """All threads of a process onto these cores."""
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)
