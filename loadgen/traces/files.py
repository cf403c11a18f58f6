"""Opens a trace: finds the file, recognises its format by its content, reads it."""

from __future__ import annotations

import itertools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadgen.schema import TraceError, TraceProgram
from loadgen.streams import stream
from loadgen.traces import coding, tau

KNOWN = "tau-bench trajectories (tau_airline), coding sessions (coding_sessions)"
_SUFFIXES = (".jsonl.xz", ".jsonl")


def read_trace(path: Path, seed: int, limit: int = 0) -> tuple[str, list[TraceProgram]]:
    """The trace's name and its programs, at most `limit` of them where it is not 0.

    path: a JSON-lines file, plain or .xz, or a folder that holds one. Raises TraceError.
    """
    file = find(path)
    records = _records(file)
    try:
        first = next(records)
    except StopIteration:
        raise TraceError(f"{file} is empty") from None
    everything = itertools.chain([first], records)
    chosen = itertools.islice(everything, limit) if limit else everything
    if isinstance(first, dict) and coding.matches(first):
        return "coding_sessions", coding.read(chosen)
    if isinstance(first, dict) and tau.matches(first):
        return "tau_airline", tau.read(chosen, stream(seed, "gaps"))
    raise TraceError(f"{file}: no known trace format; known are {KNOWN}")


def find(path: Path) -> Path:
    """The trace file that a path means. Raises TraceError."""
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.name.endswith(_SUFFIXES))
        if len(found) != 1:
            raise TraceError(f"{path} holds {len(found)} trace files; name one of them")
        return found[0]
    if not path.is_file():
        raise TraceError(f"{path} does not exist")
    return path


def _records(file: Path) -> Iterator[Any]:
    with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except ValueError as error:
                        raise TraceError(f"{file}, line {number}: {error}") from None
        except (lzma.LZMAError, UnicodeDecodeError, EOFError) as error:
            raise TraceError(f"{file} cannot be read: {error}") from None
