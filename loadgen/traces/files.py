"""Opens a trace: finds the file, recognises its format by its content, reads it."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadgen.schema import TraceError, TraceProgram
from loadgen.streams import stream
from loadgen.traces import coding, tau, tree

KNOWN = (
    "tau-bench trajectories (tau_airline), coding sessions (coding_sessions), "
    "tree-of-thoughts searches (tree_of_thoughts)"
)
_SUFFIXES = (".jsonl.xz", ".jsonl")


def read_trace(path: Path, seed: int, context: int = 0) -> tuple[str, Iterator[TraceProgram]]:
    """The trace's name, and its programs in an order that the seed shuffles, read as they are
    asked for: a trace may be far larger than what is played.

    path: a JSON-lines file, plain or .xz, or a folder that holds one. context: calls far beyond so
    many tokens need not be made, 0 for all. Raises TraceError, for a broken record when it is met.
    """
    file = find(path)
    lines = _lines(file)
    if not lines:
        raise TraceError(f"{file} is empty")
    first = _parse(file, *lines[0])
    if isinstance(first, dict) and tree.matches(first):
        # A record tells the usage up to it: all must be read in their order first.
        searches = list(tree.read(_parse(file, number, line) for number, line in lines))
        stream(seed, "sample").shuffle(searches)
        return "tree_of_thoughts", iter(searches)
    stream(seed, "sample").shuffle(lines)
    records = (_parse(file, number, line) for number, line in lines)
    if isinstance(first, dict) and coding.matches(first):
        return "coding_sessions", coding.read(records, context=context)
    if isinstance(first, dict) and tau.matches(first):
        return "tau_airline", tau.read(records, stream(seed, "gaps"))
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


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as opened:
            return [(number, line) for number, line in enumerate(opened, 1) if line.strip()]
    except (lzma.LZMAError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{file} cannot be read: {error}") from None


def _parse(file: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise TraceError(f"{file}, line {number}: {error}") from None
