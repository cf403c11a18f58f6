"""`weft bench lineage`: measures how the gateway groups calls of recorded programs without keys."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.progress import Progress

from weft_bench.cli.parts import LineageOptions
from weft_bench.micro.lineage.data import FILES, Calls, read
from weft_bench.micro.lineage.scene import Played, costs, play
from weft_bench.micro.lineage.variants import AS_RECORDED, VARIANTS
from weft_bench.report import lineage as report
from weft_bench.report.figures import finish
from weft_bench.report.rows import figures, show
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.streams import stream


def run(options: LineageOptions) -> int:
    """Measure and report. Returns the exit status: 2 if a set is unknown or unreadable."""
    names = options.sets or tuple(FILES)
    unknown = [name for name in names if name not in FILES]
    if unknown:
        known = ", ".join(FILES)
        print(f"weft bench lineage: unknown sets {unknown}; known are {known}", file=sys.stderr)
        return 2
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    try:
        with Progress() as progress:
            bar = progress.add_task("playing", total=len(names) * len(VARIANTS) + 1)
            for name in names:
                recorded = read(Path(options.data), name, options.seed)
                for variant, make in VARIANTS.items():
                    programs = [make(calls) for calls in recorded]
                    # Variants of messages do not change prompts.
                    if variant == AS_RECORDED or programs != recorded:
                        rows[name, variant] = measure(programs)
                    progress.advance(bar)
            found = asyncio.run(costs(options.rounds, stream(options.seed, "lineage/costs")))
            progress.advance(bar)
    except TraceError as error:
        print(f"weft bench lineage: {error}", file=sys.stderr)
        return 2
    costs_us = {("cost", what): report.times(seconds) for what, seconds in found.items()}
    show("Programs found without keys: pairs of calls", report.LABELS, rows, report.COLUMNS)
    show("Processor time of a call", ("", "call"), costs_us, report.COSTS)
    told = figures(rows, report.COLUMNS) + figures(costs_us, report.COSTS)
    finish("lineage", options.json_file, {**asdict(options), "sets": names}, told)
    return 0


def measure(programs: Sequence[Calls]) -> dict[str, float]:
    """Return one row. The programs are played once for the times and once for the memory."""
    played: Played = asyncio.run(play(programs))
    weighed = asyncio.run(play(programs, weigh=True))
    row = {
        "calls": len(played.at_once),
        "programs": len(programs),
        "calls_with_text": len(played.with_text),
        "held": weighed.held_bytes,
        "fingerprints": played.fingerprints,
        **report.times(played.ask_s, "ask/"),
        **report.times(played.answer_s, "answer/"),
    }
    for when in ("at_once", "in_the_end", "with_text"):
        row[f"{when}/precision"], row[f"{when}/recall"] = report.pairs(getattr(played, when))
    return row
