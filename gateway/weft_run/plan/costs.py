"""Costs of calls in seconds on a replica. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

# The KV cache of a replica that reports no size.
_KV_TOKENS: Final = 65_536
# The call by which speeds are compared, tokens: those of the workflow are not known before it runs.
_FRESH, _PROMPT, _ANSWER = 500, 1000, 200
# The names of costs in a gateway's `/health`, in the order of `StepCosts`. One above an hour, or
# room for more tokens, is an error.
_STEP_COSTS: Final = (
    "step_s", "weights_s", "prefill_token_s", "decode_sequence_s", "context_token_s",
    "prefill_pair_s",
)  # fmt: skip
_MOST_S: Final = 3600.0
_MOST_TOKENS: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class StepCosts:
    """An engine's step in seconds: step_s, weights_s for reading the weights, and for each prompt
    token, decoding sequence, token of context, and pair of a prompt token with one before it.
    Reading the weights hides the arithmetic of a small batch. together: the calls that share a step
    when it has many.
    """

    step_s: float = 0.0
    weights_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_s: float = 0.0
    context_token_s: float = 0.0
    prefill_pair_s: float = 0.0
    together: float = 1.0

    def prefill_s(self, fresh: float, prompt: float) -> float:
        """Return the time to compute the last `fresh` tokens of a prompt."""
        return fresh * (self.prefill_token_s + (prompt - fresh / 2) * self.prefill_pair_s)

    def token_s(self, context: float) -> float:
        """Return the time per answer token of a call by itself."""
        return self.step_s + max(self.weights_s, self.decode_s) + context * self.context_token_s

    def shared_token_s(self, context: float) -> float:
        """Return the time per answer token that each call costs in a full batch."""
        calls = self.together
        step_s = self.step_s + max(self.weights_s, calls * self.decode_s)
        return step_s / calls + context * self.context_token_s


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """The fit of an engine to its own steps, for as many calls as it has slots. kv_tokens: room for
    contexts, 0 if unknown.
    """

    steps: StepCosts
    kv_tokens: int = 0


def costs_of(replica: Mapping[str, Any]) -> EngineCosts | None:
    """Return the costs of a replica in a gateway's `/health`, None without well-formed ones."""
    found: Any = replica.get("costs")
    slots: Any = replica.get("slots")
    if not isinstance(found, dict):
        return None
    # Earlier releases do not report attention.
    found = {"prefill_pair_s": 0.0, **found}
    steps: list[Any] = [found.get(name) for name in _STEP_COSTS]
    room: Any = found.get("kv_tokens")
    if not all(isinstance(cost, int | float) and 0 <= cost <= _MOST_S for cost in steps):
        return None
    if not all(type(one) is int and 0 < one <= _MOST_TOKENS for one in (slots, room)):
        return None
    # The weights hide the arithmetic of a decoding sequence in small batches.
    steps[3] = max(steps[3], steps[2])
    return EngineCosts(replace(StepCosts(*steps), together=slots), room)


@dataclass(frozen=True, slots=True)
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
    return steps.prefill_s(fresh, prompt) + answer * (step_s / beside + context_s)


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
