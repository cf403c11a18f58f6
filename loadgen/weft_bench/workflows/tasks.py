"""The calls of a batch: each operator in each row, with its prompt as the cache sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from random import Random

from weft_run.plan.calls import PlannedCall
from weft_run.plan.prompts import Prompt, Slot

from weft_bench.workloads.schema import Part
from weft_bench.workloads.streams import stream

# Spread of answer lengths around an operator's mean, as a share of it.
SPREAD = 0.4


@dataclass(frozen=True, slots=True)
class Batch:
    """A workflow and its rows. calls: in topological order; all text is in placeholders, and static
    text in placeholders without axes. distinct: distinct values of an axis over the rows; other
    axes differ in each row. Equal values are in neighbouring rows. unchanged: columns that an
    earlier batch had with the same values. written: the batch before rewrites; its answers have the
    same lengths.
    """

    name: str
    calls: tuple[PlannedCall, ...]
    rows: int
    distinct: Mapping[str, int] = field(default_factory=dict)
    unchanged: frozenset[str] = frozenset()
    written: Batch | None = None

    def value(self, axis: str, row: int) -> int:
        """Return the number of the value that an axis has in a row."""
        return row * min(self.rows, self.distinct.get(axis, self.rows)) // self.rows


@dataclass(frozen=True, slots=True)
class Task:
    """One call. number: its place. call: of the batch's calls. needs: the tasks it waits for.
    answer: tokens that the engine generates. text: name of the answer's text, which equal calls
    share.
    """

    number: int
    call: int
    row: int
    name: str
    parts: tuple[Part, ...]
    prompt: int
    answer: int
    needs: tuple[int, ...]
    text: str


def tasks(batch: Batch, seed: int) -> list[Task]:
    """Return all calls, row by row. The answers vary around the operators' means."""
    place = {call.name: number for number, call in enumerate(batch.calls)}
    answers = _answers(batch.written or batch, seed)
    found: list[Task] = []
    for row in range(batch.rows):
        for number, call in enumerate(batch.calls):
            parts = parts_of(call.prompt, row, batch, answers)
            text = answers[call.name, row]
            found.append(
                Task(
                    len(found),
                    number,
                    row,
                    name_of(call.name, row),
                    parts,
                    sum(part.tokens for part in parts),
                    text.tokens,
                    tuple(row * len(batch.calls) + place[need] for need in call.needs),
                    text.name,
                )
            )
    return found


def _answers(batch: Batch, seed: int) -> dict[tuple[str, int], Part]:
    """Return the text of each answer, by call and row. Equal calls of a row have one text."""
    lengths = stream(seed, f"answers of {batch.name}")
    sigma = sqrt(log(1 + SPREAD**2))
    first = equal_calls(batch.calls)
    found: dict[tuple[str, int], Part] = {}
    for row in range(batch.rows):
        for call in batch.calls:
            if call.name in first:
                found[call.name, row] = found[first[call.name], row]
                continue
            drawn = call.answer * exp(sigma * lengths.gauss(0, 1) - sigma**2 / 2)
            name = name_of(call.name, row)
            found[call.name, row] = Part(f"answer/{name}", max(1, round(drawn)))
    return found


def equal_calls(calls: Sequence[PlannedCall]) -> dict[str, str]:
    """Return the first of the equal calls, by the name of each later one. Greedy decoding gives
    calls with equal prompts the same answer. calls: in topological order.
    """
    first: dict[object, str] = {}
    found: dict[str, str] = {}
    for call in calls:
        same = first.setdefault((call.model, renamed(call.prompt, found)), call.name)
        if same != call.name:
            found[call.name] = same
    return found


def renamed(prompt: Prompt, names: Mapping[str, str]) -> Prompt:
    """Return a prompt in which the answers of some calls are those of others."""
    return tuple(
        replace(run, key=names.get(run.key, run.key)) if isinstance(run, Slot) else run
        for run in prompt
    )


def name_of(call: str, row: int) -> str:
    """Return the name of a call in a row."""
    return f"{call}/{row}"


def parts_of(
    prompt: Prompt, row: int, batch: Batch, answers: Mapping[tuple[str, int], Part]
) -> tuple[Part, ...]:
    """Return a prompt in a row. answers: by call and row."""
    found = []
    for run in prompt:
        assert isinstance(run, Slot)
        if (run.key, row) in answers:
            found.append(answers[run.key, row])
        elif run.axes:
            values = ",".join(f"{axis}={batch.value(axis, row)}" for axis in run.axes)
            found.append(Part(f"{run.key}/{values}", run.tokens))
        else:
            found.append(Part(run.key, run.tokens))
    return tuple(found)


def static_tokens(call: PlannedCall) -> int:
    """Return the tokens at the start of a prompt that are the same in all rows."""
    found = 0
    for run in call.prompt:
        if not isinstance(run, Slot) or run.axes:
            break
        found += run.tokens
    return found


def first_statics(calls: Sequence[PlannedCall]) -> dict[tuple[str, ...], int]:
    """Return the static prefixes of all calls, as the names of their parts, with their tokens."""
    found: dict[tuple[str, ...], int] = {}
    for call in calls:
        names: list[str] = []
        for run in call.prompt:
            if not isinstance(run, Slot) or run.axes:
                break
            names.append(run.key)
        if names:
            found[tuple(names)] = static_tokens(call)
    return found


def varied(batch: Batch, rng: Random, longer: float = 1.0) -> Batch:
    """Return a batch whose lengths are `longer` times these, and differ by up to 30% at random. A
    placeholder has the same length in all prompts.
    """
    lengths: dict[str, int] = {}
    answers = {
        call.name: max(1.0, round(longer * call.answer * rng.uniform(0.7, 1.3)))
        for call in batch.calls
    }
    made = []
    for call in batch.calls:
        runs = []
        for run in call.prompt:
            assert isinstance(run, Slot)
            if run.key not in lengths:
                drawn = round(longer * run.tokens * rng.uniform(0.7, 1.3))
                lengths[run.key] = max(1, int(answers.get(run.key, drawn)))
            runs.append(replace(run, tokens=lengths[run.key]))
        made.append(replace(call, prompt=tuple(runs), answer=answers[call.name]))
    return replace(batch, calls=tuple(made))
