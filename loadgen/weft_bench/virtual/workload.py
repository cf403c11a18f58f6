"""Workloads of the simulator by name: built in, or a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from weft_bench.workloads.cutting import ReadyProgram, fit
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.traces.files import read_trace

_MADE: Final = 2
# Of messages, which no tokenizer sees here: English and JSON in vocabularies of today.
BYTES_PER_TOKEN: Final = 4.0


def load(name: str, seed: int, count: int, context: int) -> list[ReadyProgram]:
    """So many programs of a workload, cut to a context of so many tokens.

    name: one of `weft_bench.workloads`, or the path of a trace; TraceError for another one, or
    where nothing fits.
    """
    if name in WORKLOADS:
        # Programs that do not fit are passed over, so there may be more of them.
        programs = WORKLOADS[name].generate(seed, _MADE * count)
    else:
        # At full length: no real engine has to hold it.
        _, programs = read_trace(Path(name), seed, context, 1)
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
