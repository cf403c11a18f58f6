"""Workloads of the simulator by name: built in, or a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from loadgen.fit import ReadyProgram, fit
from loadgen.schema import TraceError
from loadgen.synthetic import generate
from loadgen.traces.files import read_trace

SYNTHETIC: Final = "synthetic"
# Of messages, which no tokenizer sees here: English and JSON in vocabularies of today.
BYTES_PER_TOKEN: Final = 4.0


def load(name: str, seed: int, count: int, context: int) -> list[ReadyProgram]:
    """So many programs of a workload, cut to a context of so many tokens.

    name: "synthetic", or the path of a trace; TraceError for another one, or where nothing fits.
    """
    if name == SYNTHETIC:
        programs = iter(generate(seed, count))
    else:
        _, programs = read_trace(Path(name), seed, context)
    found: list[ReadyProgram] = []
    for program in programs:
        ready = fit(program, context, BYTES_PER_TOKEN)
        if ready is not None:
            found.append(ready)
        if len(found) == count:
            break
    if not found:
        raise TraceError(f"no program of {name} fits a context of {context} tokens")
    return found
