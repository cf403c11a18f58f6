"""Which of the running calls of the plain batcher give way to waiting ones. Pure.

The same questions in the same order as the plugin's scheduler asks; the answer is the plugin's own
choice of victims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from weft_engine.call_table import CallTable
from weft_engine.preemption_rules import Candidate, Claim, choose_victims

from weft_bench.simulated.engine import Work

# As PluginSettings has it.
_MAX_DISPLACEMENTS: Final = 3


@dataclass(slots=True)
class CallSequence:
    """A call in the engine. computed: tokens whose KV it has; generated: of its answer."""

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


def victims(
    waiting: Sequence[CallSequence],
    running: Sequence[CallSequence],
    ledger: CallTable,
    *,
    wants: Callable[[CallSequence], int],
    slots: int,
    free_blocks: int,
    block_tokens: int,
) -> list[str]:
    """Names of the running sequences to displace, worst first. Both queues are sorted, and neither
    is empty. wants: free blocks that the whole of a waiting sequence takes. slots: free ones."""

    def rank(sequence: CallSequence) -> tuple[int, float]:
        return ledger.rank(sequence.name)[:2]

    def place(sequence: CallSequence) -> tuple[str, int, int, float]:
        queue, rank_, order = ledger.rank(sequence.name)
        return sequence.name, queue, order, rank_

    best, worst = rank(waiting[0]), rank(running[-1])
    if not best < worst:
        return []
    worse = list(takewhile(lambda s: best < rank(s), reversed(running)))
    # More than all of these together could not be admitted.
    better = takewhile(lambda s: rank(s) < worst, waiting[: slots + len(worse)])
    for_blocks = not ledger.order.cache_aware
    candidates = []
    for sequence in worse:
        account = ledger.of(sequence.name)
        candidates.append(
            Candidate(
                *place(sequence),
                waste=sequence.computed % block_tokens,
                preemptions=account.displaced if account else 0,
                blocks=len(sequence.blocks) if for_blocks else 0,
            )
        )
    return choose_victims(
        [Claim(*place(s), blocks=wants(s)) for s in better],
        candidates,
        free_slots=slots,
        free_blocks=free_blocks,
        max_displacements=_MAX_DISPLACEMENTS,
        margin=ledger.order.margin,
    )
