"""The least time in which engines can run a batch, whatever the schedule."""

from __future__ import annotations

from collections.abc import Sequence

from weft_bench.costs.presets import EngineShape
from weft_bench.workflows.tasks import Task


def least_seconds(tasks: Sequence[Task], shapes: Sequence[EngineShape]) -> float:
    """Return a time in seconds that no schedule of these calls can beat.

    Each different beginning of a prompt is computed once, on one engine, and an answer that a
    prompt continues is never computed again. A prompt's last step generates the first token. All
    slots are full in each step, weights cost nothing beside them, no call waits for its inputs, and
    the engines end together. tasks: row by row, in topological order.
    """
    known: set[tuple[str, ...]] = set()
    fresh = generated = read = 0
    for task in tasks:
        names: tuple[str, ...] = ()
        for part in task.parts:
            names = (*names, part.name)
            if names not in known:
                known.add(names)
                fresh += part.tokens
        known.add((*names, task.text))
        generated += task.answer - 1
        read += task.prompt * (task.answer - 1)
    rate = 0.0
    for shape in shapes:
        cost = shape.cost
        slot_s = cost.step_s / shape.slots + cost.decode_sequence_s
        alone_s = generated * slot_s + fresh * cost.prefill_token_s + read * cost.context_token_s
        rate += 1 / alone_s
    return 1 / rate
