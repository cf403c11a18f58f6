"""Costs of calls in seconds on a replica. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_gateway.model.record import record
from weft_gateway.policies.costs import EngineCosts, StepCosts

# The KV cache of a replica that reports no size.
_KV_TOKENS: Final = 65_536
# The call by which speeds are compared, tokens: those of the workflow are not known before it runs.
_FRESH, _PROMPT, _ANSWER = 500, 1000, 200


@record
class Replica:
    """An engine as the planner sees it. models: those that it serves; empty for any. costs: as its
    engine reports them; `together` is its number of slots. block: tokens of a KV block.
    """

    name: str
    costs: EngineCosts
    models: frozenset[str] = frozenset()
    block: int = 16

    @property
    def kv_tokens(self) -> int:
        """Room for contexts."""
        return self.costs.kv_tokens or _KV_TOKENS

    @property
    def slots(self) -> int:
        """Calls that run at once at most."""
        return max(1, int(self.costs.steps.together))

    def serves(self, model: str) -> bool:
        """Return whether the replica has a model. A model switch is not possible."""
        return not self.models or model in self.models

    def fits(self, context: float) -> int:
        """Return the number of calls of this length that fit into slots and cache."""
        return max(1, min(self.slots, int(self.kv_tokens / max(1.0, context))))


def call_seconds(
    steps: StepCosts, fresh: float, prompt: float, answer: float, beside: float
) -> float:
    """Return the engine seconds that a call costs. fresh: prompt tokens that are not cached.
    beside: calls in its steps, with itself, which share the costs of a step.
    """
    beside = max(1.0, beside)
    step_s = steps.step_s + max(steps.weights_s, beside * steps.decode_s)
    context_s = (prompt + answer / 2) * steps.context_token_s
    return fresh * steps.prefill_token_s + answer * (step_s / beside + context_s)


def relative_speeds(replicas: Sequence[Replica]) -> dict[str, float]:
    """Return the calls that a full replica ends per second and slot, over those of the fastest one,
    by name: more than 0, at most 1. Empty if a replica has no costs.
    """
    seconds = {
        one.name: one.slots
        * call_seconds(one.costs.steps, _FRESH, _PROMPT, _ANSWER, one.fits(_PROMPT + _ANSWER))
        for one in replicas
    }
    least = min(seconds.values(), default=0.0)
    return {name: least / taken for name, taken in seconds.items()} if least else {}
