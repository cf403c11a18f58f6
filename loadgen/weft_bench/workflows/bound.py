"""The least time in which engines can run a batch, whatever the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_engine.emulated.presets import EngineShape

from weft_bench.workflows.tasks import Task

_CLOSE: Final = 1e-9


def least_seconds(tasks: Sequence[Task], shapes: Sequence[EngineShape]) -> float:
    """Return a time in seconds that no schedule of these calls can beat. Raises ValueError for
    engines whose costs are not proportional: one could then do all of the work that it is good at.

    Each different beginning of a prompt is computed once, on one engine, and an answer that a
    prompt continues is never computed again. A prompt's last step generates the first token. All
    slots are full in each step, weights cost nothing beside them, no call waits for its inputs, and
    the engines end together. tasks: row by row, in topological order.
    """
    first = shapes[0]
    if any(_factors(one, first) > _CLOSE for one in shapes):
        raise ValueError("the costs of these engines are not proportional")
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
        slot_s, prefill_s, context_s = _costs(shape)
        rate += 1 / (generated * slot_s + fresh * prefill_s + read * context_s)
    return 1 / rate


def _costs(shape: EngineShape) -> tuple[float, float, float]:
    """Return seconds per generated token in a full batch, per prompt token, and per token that a
    generated token reads.
    """
    cost = shape.cost
    slot_s = cost.step_s / shape.slots + cost.decode_sequence_s
    return slot_s, cost.prefill_token_s, cost.context_token_s


def _factors(one: EngineShape, other: EngineShape) -> float:
    """Return how much the factors between the costs of two engines differ."""
    factors = [a / b for a, b in zip(_costs(one), _costs(other), strict=True) if b]
    return max(factors) / min(factors) - 1
