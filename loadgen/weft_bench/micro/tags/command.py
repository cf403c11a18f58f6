"""`weft bench tags`: compares the tags of blocks with those of a full tokenisation."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.progress import Progress

from weft_bench.cli.parts import TagsOptions
from weft_bench.micro.tags.dialogues import Program, dialogues
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import Column, figures, show
from weft_bench.stats import mean, percentile
from weft_bench.workloads.schema import TraceError

if TYPE_CHECKING:
    from weft_bench.micro.tags.way import Tagged


LABELS: Final = ("tokenizer", "data")
COLUMNS: Final = (
    Column("calls", "1", "calls", ",.0f"),
    Column("roles_mean", "1", "roles %", ".1f", 100),
    Column("roles_p5", "1", "roles p5", ".1f", 100),
    Column("wire_mean", "1", "wire %", ".1f", 100),
    Column("wire_p5", "1", "wire p5", ".1f", 100),
    Column("first_roles_mean", "1", "first calls %", ".1f", 100),
    Column("first_wire_mean"),
    Column("plain_mean", "1", "chars/4 %", ".1f", 100),
    Column("tokens_off_p50"),
    Column("tag_p50", "s", "tag us", ",.0f", 1e6),
    Column("tag_p99", "s", "tag p99", ",.0f", 1e6),
    Column("learn_p50", "s", "learn us", ",.0f", 1e6),
    Column("learn_p99", "s", "learn p99", ",.0f", 1e6),
)


def values(calls: Sequence[Tagged], warm_up: int) -> dict[str, float]:
    """Return the figures of one data set under one tokenizer, by the names of COLUMNS.

    calls: in order. warm_up: first calls that are counted separately.
    """
    first, after = calls[:warm_up], calls[warm_up:]
    off = [abs(call.tokens_off) / call.prompt_tokens for call in after]
    return {
        "calls": len(calls),
        "roles_mean": mean([call.roles for call in after]),
        "roles_p5": percentile([call.roles for call in after], 0.05),
        "wire_mean": mean([call.wire for call in after]),
        "wire_p5": percentile([call.wire for call in after], 0.05),
        "first_roles_mean": mean([call.roles for call in first]),
        "first_wire_mean": mean([call.wire for call in first]),
        "plain_mean": mean([call.plain for call in after]),
        "tokens_off_p50": percentile(off, 0.5),
        "tag_p50": percentile([call.count_s for call in calls], 0.5),
        "tag_p99": percentile([call.count_s for call in calls], 0.99),
        "learn_p50": percentile([call.learn_s for call in calls], 0.5),
        "learn_p99": percentile([call.learn_s for call in calls], 0.99),
    }


def run(options: TagsOptions) -> int:
    """Measure and report. Returns the exit status: 2 without data or tokenizers."""
    try:
        from weft_bench.micro.tags.truth import tokenizers
        from weft_bench.micro.tags.way import tag_programs

        found = dialogues(Path(options.data))
        sets = {name: programs[: options.programs or None] for name, programs in found.items()}
        at_hand = tokenizers(lambda: _texts(found))
    except ImportError as error:
        return refuse("tags", f"needs the package tokenizers: {error}")
    except TraceError as error:
        return refuse("tags", error)
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    try:
        with Progress() as progress:
            bar = progress.add_task("tagging", total=len(at_hand) * len(sets))
            # Keeps the garbage collector away from the input during the timed calls.
            gc.freeze()
            for tokenizer, (template, tokens) in at_hand.items():
                for data, programs in sets.items():
                    tagged = tag_programs(programs, template, tokens)
                    warm_up = min(options.warm_up, len(tagged) - 1)
                    rows[tokenizer, data] = values(tagged, warm_up)
                    progress.advance(bar)
    finally:
        gc.unfreeze()
    title = "share of 16-token blocks whose tag equals that of a full tokenisation"
    show(title, LABELS, rows, COLUMNS)
    finish("tags", options.json_file, asdict(options), figures(rows, COLUMNS))
    return 0


def _texts(sets: dict[str, list[Program]]) -> Iterator[str]:
    """Yield texts to train the tokenizer: a quarter of the programs."""
    for programs in sets.values():
        for program in programs[::4]:
            for message in program[-1]["messages"] if program else ():
                yield message.get("content") or ""
