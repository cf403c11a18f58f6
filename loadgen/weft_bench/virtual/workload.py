"""Workloads of the simulator by name: built-in ones and trace files."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from weft_bench.workloads.cutting import ReadyProgram, fitting
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.traces.files import read_trace

_MADE: Final = 2
# For messages, which are not tokenized here: English and JSON in current vocabularies.
BYTES_PER_TOKEN: Final = 4.0


def load(name: str, seed: int, count: int, context: int) -> list[ReadyProgram]:
    """Return up to `count` programs of a workload, cut to `context` tokens.

    name: one of `weft_bench.workloads`, or the path of a trace. Raises TraceError for an unknown
    name or if no program fits.
    """
    if name in WORKLOADS:
        # Some programs do not fit and are skipped, so generate more.
        programs = WORKLOADS[name].generate(seed, _MADE * count)
    else:
        _, programs = read_trace(Path(name), seed)
    found = list(islice(fitting(programs, context, BYTES_PER_TOKEN), count))
    if not found:
        raise TraceError(f"no program of {name} fits a context of {context} tokens")
    return found
