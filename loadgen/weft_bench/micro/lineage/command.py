"""`weft bench lineage`: measures how the gateway groups calls of recorded programs without keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.progress import Progress

from weft_bench.cli.parts import LineageOptions
from weft_bench.micro.lineage.data import FILES, Calls, read
from weft_bench.micro.lineage.scene import Played, costs, play
from weft_bench.micro.lineage.variants import AS_RECORDED, NAMES, VARIANTS
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import Column, figures, show
from weft_bench.stats import percentile
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.streams import stream

# By call: its actual program and the program that lineage found.
Labels = Sequence[tuple[int, str]]

LABELS: Final = ("set", "variant")
COLUMNS: Final = (
    *(
        Column(f"{when}/{what}", "1", f"{heading} {what}".strip(), ".4f")
        for when, heading in (("at_once", ""), ("in_the_end", "in the end"), ("with_text", "text"))
        for what in ("precision", "recall")
    ),
    Column("calls", "1", "calls", ",.0f"),
    Column("calls_with_text"),
    Column("programs", "1", "programs", ",.0f"),
    Column("held", "bytes", "KB held", ",.0f", 1e-3),
    Column("fingerprints"),
    *(
        Column(f"{what}/{share}", "us", f"{what} {share}, us", ".0f")
        for what in ("ask", "answer")
        for share in ("p50", "p99")
    ),
)
COSTS: Final = (Column("p50", "us", "p50, us", ".0f"), Column("p99", "us", "p99, us", ".0f"))


def pairs(labels: Labels) -> tuple[float, float]:
    """Return the precision and recall of pairs of calls.

    Precision: share of the pairs put into one program that belong together. Recall: share of the
    pairs that belong together that were put into one program. 1 without pairs.
    """
    both = _count(labels)
    true, found = _count(t for t, _ in labels), _count(f for _, f in labels)
    return both / found if found else 1.0, both / true if true else 1.0


def _count(values: Iterable[object]) -> int:
    return sum(n * (n - 1) // 2 for n in Counter(values).values())


def times(seconds: Sequence[float], at: str = "") -> dict[str, float]:
    """Return median and p99 in microseconds, with names that begin with `at`."""
    return {f"{at}p{int(100 * q)}": 1e6 * percentile(seconds, q) for q in (0.5, 0.99)}


def run(options: LineageOptions) -> int:
    """Measure and report. Returns the exit status: 2 if a set is unknown or unreadable."""
    names = options.sets or tuple(FILES)
    unknown = [name for name in names if name not in FILES]
    if unknown:
        known = ", ".join(FILES)
        return refuse("lineage", f"unknown sets {unknown}; known are {known}")
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    variants = {AS_RECORDED: VARIANTS[AS_RECORDED], **NAMES} if options.names else VARIANTS
    try:
        with Progress() as progress:
            bar = progress.add_task("playing", total=len(names) * len(variants) + 1)
            for name in names:
                recorded = read(Path(options.data), name, options.seed)
                for variant, make in variants.items():
                    programs = [make(calls) for calls in recorded]
                    # Variants of messages do not change prompts.
                    if variant == AS_RECORDED or programs != recorded:
                        rows[name, variant] = measure(programs)
                    progress.advance(bar)
            found = asyncio.run(costs(options.rounds, stream(options.seed, "lineage/costs")))
            progress.advance(bar)
    except TraceError as error:
        return refuse("lineage", error)
    costs_us = {("cost", what): times(seconds) for what, seconds in found.items()}
    what = "with names that mislead" if options.names else "without keys"
    show(f"Programs found {what}: pairs of calls", LABELS, rows, COLUMNS)
    show("Processor time of a call", ("", "call"), costs_us, COSTS)
    told = figures(rows, COLUMNS) + figures(costs_us, COSTS)
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
        **times(played.ask_s, "ask/"),
        **times(played.answer_s, "answer/"),
    }
    for when in ("at_once", "in_the_end", "with_text"):
        row[f"{when}/precision"], row[f"{when}/recall"] = pairs(getattr(played, when))
    return row
