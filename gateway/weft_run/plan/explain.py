"""The plan of a workflow before it runs, as SQL's EXPLAIN: calls, tokens, rewrites.

Calls and prompt tokens come from a trial on rows of the input, so that prompts of columns are
exact; lengths of answers are estimates. Nothing here changes a prompt: hints only show where
another order would share more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_run.language.graph import LangGraph, Loop, Workflow
from weft_run.plan.commands import NO_USAGE, Usage
from weft_run.plan.dispatch import Counts
from weft_run.plan.rewrite import Rewrite, rewrite
from weft_run.plan.trial import BLOCK_TOKENS, CHARACTERS, Piece, Trial, trial

# A hint is worth this share of the operator's prompt tokens.
_WORTH: Final = 0.05
_MOST_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan.

    workflow: after rewriting. rows: of the input. counts: by operator as in a run, for all rows.
    naive: requests without rewrites and merging. savings: the rewrites, each with the requests that
    it saves in all rows. merged: requests that equal ones save. notes: limits of these figures.
    hints: for the author.
    """

    workflow: Workflow
    rows: int
    counts: Mapping[str, Counts]
    naive: int
    savings: tuple[tuple[Rewrite, int], ...]
    merged: int
    notes: tuple[str, ...]
    hints: tuple[str, ...]

    @property
    def requests(self) -> int:
        """Calls of models and tools that remain."""
        return sum(one.calls for one in self.counts.values())


def explain(workflow: Workflow, sample: Sequence[Mapping[str, Any]], rows: int) -> Explained:
    """Explain a workflow. sample: rows of the input. rows: their number in the whole input.
    Figures of the sample are scaled.
    """
    scale = rows / len(sample) if sample else 0.0
    before = {name: _executions(one) for name, one in trial(workflow, sample).counts.items()}
    done = rewrite(workflow)
    after = trial(done.workflow, sample)
    counts = {name: scaled([one], scale) for name, one in after.counts.items()}
    return Explained(
        done.workflow,
        rows,
        counts,
        round(scale * sum(before.values())),
        tuple((one, round(scale * _within(one.operator, before))) for one in done.rewrites),
        sum(one.merged for one in counts.values()),
        tuple(_notes(done.workflow, after, rows, len(sample))),
        tuple(_hints(after, scale)),
    )


def scaled(counts: Iterable[Counts], scale: float = 1.0) -> Counts:
    """Return the sum of counts for more rows. merged: all executions without a request."""
    found = list(counts)
    usage = (sum(tokens) for tokens in zip(NO_USAGE, *(one.usage for one in found), strict=True))
    return Counts(
        calls=round(scale * sum(one.calls for one in found)),
        merged=round(scale * sum(one.merged + one.cached for one in found)),
        usage=Usage(*(round(scale * tokens) for tokens in usage)),
    )


def _executions(one: Counts) -> int:
    return one.calls + one.merged + one.cached


def _within(operator: str, executions: Mapping[str, int]) -> int:
    """Return the executions of an operator, with its cases, or those of its body."""
    every = executions.items()
    return sum(count for path, count in every if re.split(r"[.\[]", path)[0] == operator)


def _notes(workflow: Workflow, after: Trial, rows: int, sample: int) -> Iterator[str]:
    if sample < rows:
        yield f"figures of {sample} rows, scaled to {rows}"
    for one in workflow.operators:
        if isinstance(one.body, LangGraph):
            yield f"{one.name}: the calls of a graph's nodes are not known before the run"
        if isinstance(one.body, Loop):
            yield f"{one.name}: the rounds depend on answers; at most {one.body.max}"
    for message, count in after.errors.most_common(_MOST_ERRORS):
        yield f"{count} rows could not be followed to their end: {message}"


def _hints(after: Trial, scale: float) -> Iterator[str]:
    """Yield the operators in which text that varies less comes after text that varies more."""
    for name, pieces in after.pieces.items():
        counts = after.counts[name]
        tried = _executions(counts)
        count = max(1, round(scale * tried))
        # Different prompts up to here, and the placeholder that varies most.
        early, most = 1, 1
        first, tokens, saved = "", 0, 0
        for piece in pieces:
            varies = _variants(piece, tried, count)
            if varies < most:
                length = piece.characters // tried // CHARACTERS
                gain = length - length % BLOCK_TOKENS
                tokens += gain
                saved += gain * (min(count, early * varies) - varies)
            elif varies > most:
                most, first = varies, ", ".join(piece.names)
            early = min(count, early * varies)
        if saved > _WORTH * count * counts.usage.prompt / counts.calls:
            yield (
                f"{name}: about {tokens} tokens that vary less follow '{first}'; before it, "
                f"the calls would share about {saved} more tokens"
            )


def _variants(piece: Piece, tried: int, count: int) -> int:
    """Return the number of different texts of a part of prompts, of which `tried` were tried."""
    if not piece.names:
        return 1
    return count if len(piece.texts) == tried else len(piece.texts)
