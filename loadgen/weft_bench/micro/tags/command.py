"""`weft bench tags`: compares the tags of blocks with those of a full tokenisation."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.progress import Progress

from weft_bench.cli.parts import TagsOptions
from weft_bench.micro.tags.dialogues import Program, dialogues
from weft_bench.report import tags as report
from weft_bench.report.figures import finish
from weft_bench.report.rows import figures, show
from weft_bench.workloads.schema import TraceError


def run(options: TagsOptions) -> int:
    """Measure and report. Returns the exit status: 2 without data or tokenizers."""
    try:
        from weft_bench.micro.tags.truth import tokenizers
        from weft_bench.micro.tags.way import tag_programs

        found = dialogues(Path(options.data))
        sets = {name: programs[: options.programs or None] for name, programs in found.items()}
        at_hand = tokenizers(lambda: _texts(found))
    except ImportError as error:
        print(f"weft bench tags: needs the package tokenizers: {error}", file=sys.stderr)
        return 2
    except TraceError as error:
        print(f"weft bench tags: {error}", file=sys.stderr)
        return 2
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
                    rows[tokenizer, data] = report.values(tagged, warm_up)
                    progress.advance(bar)
    finally:
        gc.unfreeze()
    title = "share of 16-token blocks whose tag equals that of a full tokenisation"
    show(title, report.LABELS, rows, report.COLUMNS)
    finish("tags", options.json_file, asdict(options), figures(rows, report.COLUMNS))
    return 0


def _texts(sets: dict[str, list[Program]]) -> Iterator[str]:
    """Yield texts to train the tokenizer: a quarter of the programs."""
    for programs in sets.values():
        for program in programs[::4]:
            for message in program[-1]["messages"] if program else ():
                yield message.get("content") or ""
