"""The plan of a workflow before it runs, as SQL's EXPLAIN: calls, tokens, rewrites.

Calls and prompt tokens come from a trial on rows of the input, so that prompts of columns are
exact; lengths of answers are estimates. Nothing here changes a prompt: hints only show where
another order would share more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_run.language.graph import LangGraph, Loop, Operator, Workflow
from weft_run.language.sandbox import shown
from weft_run.language.trial import Figures, Trial, trial
from weft_run.plan.calls import PlannedCall, Profile, planned_calls
from weft_run.plan.prompts import (
    BLOCK_TOKENS,
    CHARACTERS,
    Chat,
    Slot,
    cut,
    estimate_tokens,
)
from weft_run.plan.rewrite import Rewrite, rewrite

# A hint is worth this share of the operator's prompt tokens.
_WORTH: Final = 0.05
_MOST_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class Saving:
    """A rewrite with the requests that it saves, in all rows."""

    rewrite: Rewrite
    requests: int


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan.

    workflow: after rewriting. rows: of the input; sample: those that were tried. tallies: by
    operator, for all rows. naive: requests without rewrites and merging. merged: requests that
    equal ones save. notes: limits of these figures. hints: for the author.
    """

    workflow: Workflow
    rows: int
    sample: int
    tallies: Mapping[str, Figures]
    naive: int
    savings: tuple[Saving, ...]
    merged: int
    notes: tuple[str, ...]
    hints: tuple[str, ...]

    @property
    def requests(self) -> int:
        """Calls of models and tools that remain."""
        return sum(one.requests for one in self.tallies.values())


def explain(workflow: Workflow, sample: Sequence[Mapping[str, Any]], rows: int) -> Explained:
    """Explain a workflow. sample: rows of the input. rows: their number in the whole input.
    Figures of the sample are scaled.
    """
    scale = rows / len(sample) if sample else 0.0
    before = trial(workflow, sample, merges=False)
    done = rewrite(workflow)
    after = trial(done.workflow, sample, merges=True)
    tallies = {name: _scaled(one, scale) for name, one in after.tallies.items()}
    savings = tuple(Saving(one, _saved(one, workflow, before, scale)) for one in done.rewrites)
    profile = _profile(done.workflow, sample)
    return Explained(
        done.workflow,
        rows,
        len(sample),
        tallies,
        round(scale * sum(one.executions for one in before.tallies.values())),
        savings,
        sum(one.merged for one in tallies.values()),
        tuple(_notes(done.workflow, after, rows, len(sample))),
        tuple(_hints(planned_calls(done.workflow, profile, _PLAIN), profile, rows)),
    )


# Markup between messages is no text of the author.
_PLAIN: Final = Chat(opening="", closing="")


def _scaled(one: Figures, scale: float) -> Figures:
    figures = (one.executions, one.merged, one.prompt, one.cached, one.output)
    return Figures(*(round(scale * figure) for figure in figures))


def _saved(one: Rewrite, workflow: Workflow, before: Trial, scale: float) -> int:
    names = list(_within(workflow.by_name[one.operator]))
    found = sum(before.tallies[name].executions for name in names if name in before.tallies)
    return round(scale * found)


def _within(one: Operator) -> Iterator[str]:
    yield one.name
    if isinstance(one.body, Loop):
        for inner in one.body.body:
            yield from _within(inner)


def _profile(workflow: Workflow, sample: Sequence[Mapping[str, Any]]) -> Profile:
    """Measure lengths and distinct values of the columns, and items per row."""
    columns, distinct, items = {}, {}, {}
    for name in workflow.inputs:
        texts = [shown(row.get(name)) for row in sample]
        if texts:
            columns[name] = sum(map(len, texts)) / len(texts) / CHARACTERS
            different = len(set(texts))
            if different < len(texts):
                distinct[name] = different
    for one in workflow.operators:
        if one.for_each is not None and one.for_each in workflow.inputs:
            # Other values are errors of their rows.
            lists = (row.get(one.for_each) for row in sample)
            lengths = [len(each) for each in lists if isinstance(each, list)]
            items[one.name] = max(1.0, sum(lengths) / max(1, len(lengths)))
    return Profile(columns=columns, distinct=distinct, items=items)


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


def _hints(calls: Sequence[PlannedCall], profile: Profile, rows: int) -> Iterator[str]:
    """Yield the operators in which text that varies less comes after text that varies more."""
    for call in calls:
        count = max(1, round(call.per_row * rows))
        # Different prompts up to here, and the placeholder that varies most.
        early, most = 1, 1
        first, tokens, saved = "", 0, 0
        for run in call.prompt:
            if isinstance(run, Slot):
                varies, length, key = _variants(run, profile, count), run.tokens, run.key
            else:
                varies, length, key = 1, len(estimate_tokens(run)), ""
            if varies < most:
                gain = cut(length, BLOCK_TOKENS)
                tokens += gain
                saved += gain * (min(count, early * varies) - varies)
            elif varies > most:
                most, first = varies, key
            early = min(count, early * varies)
        if saved > _WORTH * count * call.prompt_tokens:
            yield (
                f"{call.name}: about {tokens} tokens that vary less follow '{first}'; before it, "
                f"the calls would share about {saved} more tokens"
            )


def _variants(slot: Slot, profile: Profile, count: int) -> int:
    """Return the number of different contents of a placeholder."""
    found = 1
    for axis in slot.axes:
        found *= profile.distinct.get(axis, count)
    return min(found, count)
