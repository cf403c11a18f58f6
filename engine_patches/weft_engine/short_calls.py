"""The share of short calls: chats, titles and classifiers beside agents. Pure.

A short call is the first call of its program and has a small prompt. It takes the next free slot,
and preempts another call if all slots are taken. While it runs, the prefill of other calls may
lengthen its steps only a little. Both are limited, so that many short calls cannot starve the
others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from itertools import islice
from math import inf
from typing import Final

from weft_engine.step_cost import StepCost

# Short calls take slots before other calls while they have at most this share of all slots.
_SLOTS: Final = 1 / 4
# The longest prompt of a short call, as a share of a full step.
_PROMPT: Final = 1 / 2
# By how much the prefill of other calls may delay short ones: seconds at once, and then a share of
# the time that steps take without prefill.
_AT_ONCE_S: Final = 0.1
_DELAY: Final = 0.25
# The next short call is expected for this many seconds.
_EXPECTED_S: Final = 10.0
# Prefill is limited further for at most half of the engine's time, and this many seconds more.
_LIMITED_S: Final = 5.0


class ShortCalls:
    """The short calls of one engine. cost: of its steps. slots: of the engine. step_tokens: of its
    longest step. most_tokens: the longest prompt of a short call."""

    def __init__(self, cost: StepCost, slots: int, step_tokens: int) -> None:
        self.most_tokens = int(_PROMPT * step_tokens)
        self._cost = cost
        self._slots = max(1, int(_SLOTS * slots))
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._running: set[str] = set()
        # By how much prefill may still delay short calls, seconds.
        self._delay_s = _AT_ONCE_S
        # For how long prefill may still be limited, seconds.
        self._limited_s = _LIMITED_S
        # Engine time since a short call was here, seconds.
        self._since_s = inf
        # Whether the next step computes fewer prompt tokens than it could.
        self._limiting = False

    def __contains__(self, sequence: str) -> bool:
        return sequence in self._running or sequence in self._waiting

    @property
    def run(self) -> bool:
        """Whether a short call runs."""
        return bool(self._running)

    def leading(self) -> list[str]:
        """Return the waiting short calls that come before all other calls."""
        return list(islice(self._waiting, max(0, self._slots - len(self._running))))

    def queued(self, sequence: str) -> None:
        """A short call waits: it is new or was preempted."""
        self._waiting[sequence] = None
        if sequence in self._running:
            # It was preempted, and continues before calls that have not begun.
            self._running.remove(sequence)
            self._waiting.move_to_end(sequence, last=False)
        self._since_s = 0.0

    def started(self, sequence: str) -> None:
        """A waiting sequence was admitted."""
        if sequence in self._waiting:
            del self._waiting[sequence]
            self._running.add(sequence)

    def left(self, sequence: str) -> None:
        """A sequence has finished."""
        self._waiting.pop(sequence, None)
        self._running.discard(sequence)
        if not self._running:
            self._delay_s = _AT_ONCE_S

    def clear(self) -> None:
        """Another order begins."""
        self._waiting.clear()
        self._running.clear()

    @property
    def expected(self) -> bool:
        """Whether the next short call is expected soon. It waits for the steps that are already
        scheduled."""
        return self._since_s <= _EXPECTED_S

    @property
    def delay_s(self) -> float:
        """Seconds by which the prompts of other calls may delay short ones in the next step;
        infinite without a limit."""
        return self._delay_s if self._running and self._limited_s > 0 else inf

    def delayed(self, seconds: float, limited: bool) -> None:
        """The prompts of other calls take these seconds in the next step. limited: they could take
        more."""
        if self.delay_s < inf:
            self._delay_s = max(0.0, self._delay_s - seconds)
        self._limiting = limited

    def ran(self, duration_s: float) -> None:
        """A step has run."""
        if self._limiting:
            self._limited_s -= duration_s
        else:
            self._limited_s = min(_LIMITED_S, self._limited_s + duration_s)
        self._since_s += duration_s
        if self._running:
            self._since_s = 0.0
            self._delay_s = min(_AT_ONCE_S, self._delay_s + _DELAY * self._cost.base_s)

    def violations(self, waiting: Container[str]) -> list[str]:
        """Return inconsistencies in words. waiting: all waiting sequences."""
        strays = [name for name in self._waiting if name not in waiting]
        return [f"short calls {strays[:5]} do not wait"] * bool(strays)
