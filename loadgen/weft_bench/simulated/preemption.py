"""Selects the running calls of the batcher that waiting calls preempt. Pure.

It applies the checks of the plugin's scheduler in the same order and calls the plugin's own choice
of victims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from weft_engine.call_table import CallTable
from weft_engine.preemption_rules import Candidate, Claim, meet_claims

from weft_bench.simulated.engine import Work

# The same as in PluginSettings.
_MAX_PREEMPTIONS: Final = 3


@dataclass(slots=True)
class CallSequence:
    """A call in the engine.

    computed: tokens with KV entries. generated: tokens of the answer.
    """

    name: str
    work: Work
    hashes: list[int]
    computed: int = 0
    generated: int = 0
    lost: int | None = None
    blocks: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens of its context so far."""
        return self.work.prompt_tokens + self.generated


def choose_preempted(
    waiting: Sequence[CallSequence],
    running: Sequence[CallSequence],
    ledger: CallTable,
    *,
    wants: Callable[[CallSequence], int],
    slots: int,
    free_blocks: int,
    block_tokens: int,
) -> list[str]:
    """Return the names of the running sequences to preempt, worst first.

    Both queues are sorted and not empty. wants: returns the free blocks that the whole of a waiting
    sequence takes. slots: number of free slots.
    """

    def rank(sequence: CallSequence) -> tuple[int, float]:
        return ledger.rank(sequence.name)[:2]

    best, worst = rank(waiting[0]), rank(running[-1])
    if not best < worst:
        return []
    worse = list(takewhile(lambda s: best < rank(s), reversed(running)))
    # Preempting all of these would not make room for more.
    better = takewhile(lambda s: rank(s) < worst, waiting[: slots + len(worse)])
    for_blocks = not ledger.order.cache_aware
    candidates = []
    for sequence in worse:
        account = ledger.of(sequence.name)
        candidates.append(
            Candidate(
                sequence.name,
                ledger.rank(sequence.name),
                waste=sequence.computed % block_tokens,
                preemptions=account.displaced if account else 0,
                blocks=len(sequence.blocks) if for_blocks else 0,
            )
        )
    met = meet_claims(
        [Claim(s.name, ledger.rank(s.name), wants(s)) for s in better],
        candidates,
        free_slots=slots,
        free_blocks=free_blocks,
        max_displacements=_MAX_PREEMPTIONS,
        margin=ledger.order.margin,
    )
    return [victim for _, victims in met for victim in victims]
