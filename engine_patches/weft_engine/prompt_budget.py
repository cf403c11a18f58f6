"""The prompt tokens of one step: one budget for all reasons to limit them. Pure.

Prompt tokens lengthen a step for every sequence in it. The budget of a step is the least of:

- the tokens of the step less those of the sequences that decode, whatever the order of the queue;
- while answers run, and for some seconds after a short call: the rest of the step's duration must
  be at least the share `SLOWER` of the time of its prompts. A prompt pays this rest for each of its
  parts, so beside answers it takes at most this share longer;
- for calls that are not short: half of it while short calls wait, because vLLM serves running calls
  first; while short calls run, their delay (see `short_calls`). What is left of a small prompt is
  not limited: many small calls would wait for the sake of a few;
- while tenants contend: the share of each tenant (see `prefill_limits`).
"""

from __future__ import annotations

from math import inf
from typing import Final

from weft_engine.prefill_limits import PrefillLimits, PrefillPacing, Step
from weft_engine.short_calls import ShortCalls
from weft_engine.step_cost import StepCost
from weft_engine.step_fit import StepCosts, StepMeter

# By how much longer a prompt may take because answers run, as a share of its own time.
SLOWER: Final = 0.15
# The smallest part of a prompt; smaller ones are left to a later step.
_LEAST: Final = 16
# Prompts with at most this many tokens left are not limited for short calls.
_SMALL: Final = 512
# Waiting calls that a step may skip because it has no tokens for them.
_MOST_PASSED_OVER: Final = 32


class PromptBudget:
    """The prompt tokens of one step.

    tokens: of all prompts. seconds: that all prompts take, infinite for any number. others_s: by
    how much the prompts of calls which are not in `short` lengthen the step. others: the tokens of
    these. hidden_s: seconds of prompts that do not lengthen it. tenants: the limits of tenants,
    None while none contend.

    limited: whether the prompt of a call that is not short got fewer tokens because of `others_s`.
    """

    def __init__(
        self,
        tokens: int,
        seconds: float,
        others_s: float,
        others: int,
        hidden_s: float,
        costs: StepCosts,
        short: ShortCalls,
        tenants: PrefillLimits | None,
    ) -> None:
        self.limited = False
        self._tokens, self._left_s, self._others_s = tokens, seconds, others_s + hidden_s
        self._others, self._hidden_s = others, hidden_s
        # Seconds of the prompts of calls that are not short.
        self._used_s = 0.0
        # Whether a prompt got tokens.
        self._begun = False
        self._costs, self._short, self._tenants = costs, short, tenants
        self._passed_over = 0

    @property
    def delay_s(self) -> float:
        """By how much the prompts of calls that are not short lengthen the step."""
        return max(0.0, self._used_s - self._hidden_s)

    @property
    def spent(self) -> bool:
        """Whether no prompt gets further tokens. Never before one got some: time passes with steps
        only, so an idle engine would never run another one."""
        return self._tokens <= 0 or (self._begun and self._left_s < self._costs.prefill_s(_LEAST))

    def left(self, sequence: str, running: bool, tokens: int, context: int) -> int:
        """Return how many of these prompt tokens the sequence may compute in this step. running: it
        was already in the batch. context: its tokens before them."""
        small = self._is_small(sequence, tokens)
        if self._tenants is not None:
            tokens = self._tenants.left(sequence, running, tokens)
        tokens, seconds = min(tokens, self._tokens), self._left_s
        if not small:
            tokens, seconds = min(tokens, self._others), min(seconds, self._others_s)
        fitting = self._costs.prefill_tokens(seconds, context)
        if tokens <= fitting:
            return max(0, tokens)
        self.limited |= not small and self._others_s < self._left_s
        if fitting >= _LEAST:
            return int(fitting)
        # A step without any tokens would be the last one: time passes with steps only.
        return 0 if self._used_s else min(tokens, _LEAST)

    def take(self, sequence: str, running: bool, tokens: int, of: int, context: int) -> None:
        """A sequence computes `tokens` of the `of` prompt tokens that it lacks, after `context`
        earlier ones."""
        if self._tenants is not None:
            self._tenants.take(sequence, running, tokens, of)
        seconds = self._costs.prefill_s(tokens, context)
        self._begun = True
        self._tokens -= tokens
        self._left_s -= seconds
        if not self._is_small(sequence, of):
            self._others -= tokens
            self._others_s -= seconds
            self._used_s += seconds

    def _is_small(self, sequence: str, tokens: int) -> bool:
        """Return whether a prompt that lacks this many tokens is not limited for short calls."""
        return tokens <= _SMALL or sequence in self._short

    def passes_over(self, sequence: str, tokens: int) -> bool:
        """Whether this step skips a waiting sequence of this many tokens, so that later ones are
        considered."""
        if self._passed_over >= _MOST_PASSED_OVER or self.left(sequence, False, tokens, 0) > 0:
            return False
        self._passed_over += 1
        return True


class PromptBudgets:
    """Makes the budget of each step of an engine. cost, meter: learned from its steps. short: its
    short calls. tenants: the limits of its tenants."""

    def __init__(
        self, cost: StepCost, meter: StepMeter, short: ShortCalls, tenants: PrefillPacing
    ) -> None:
        self._cost, self._meter = cost, meter
        self._short, self._tenants = short, tenants

    def next(self, step: Step, paced: bool) -> PromptBudget | None:
        """Return the budget of the next step; None for vLLM's own. paced: the order limits prompts
        beside running answers."""
        tenants, short = self._tenants.limits(step), self._short
        beside = paced and (step.decoding > 0 or short.expected)
        if not beside and tenants is None:
            return None
        costs = self._meter.fit.costs
        if costs is None:
            costs = StepCosts(self._cost.base_s, 0.0, self._cost.token_s, 0.0, 0.0)
        rest_s = costs.step(0, step.decoding, self._meter.context) if beside else 0.0
        seconds = rest_s / SLOWER or inf
        others_s, others = (short.delay_s if rest_s else inf), step.budget
        if beside and short.leading():
            others_s, others = min(others_s, seconds / 2), others // 2
        # The arithmetic of a small batch takes no longer than reading the weights.
        hidden_s = max(0.0, costs.weights_s - step.decoding * costs.decode_sequence_s)
        return PromptBudget(step.budget, seconds, others_s, others, hidden_s, costs, short, tenants)
