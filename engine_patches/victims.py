"""Which running sequences give way to waiting ones that stand better. Pure.

Upstream never displaces a running request when `max_num_seqs` is reached, nor when a waiting one
finds no blocks; Algorithm 1 does both, since its batch is chosen from the best queue down. Only a
strictly better queue displaces (or, for orders by rank, a rank better by a margin): two calls of
one queue never trade places, and a displaced call comes back only when somebody leaves or falls
below it, which takes a whole quantum of service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting sequence, and the free blocks that admitting it would take."""

    sequence: str
    queue: int
    order_in_queue: int = 0
    rank: float = 0.0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running sequence that may be displaced.

    waste: tokens that displacing it would compute again (what neither the cache nor the swap
    buffer holds). displaced: how often its call has been displaced already. blocks: what it holds
    alone, and so would free.
    """

    sequence: str
    queue: int
    order_in_queue: int = 0
    rank: float = 0.0
    waste: int = 0
    displaced: int = 0
    blocks: int = 0


def choose_victims(
    waiting: Sequence[Claim],
    running: Sequence[Candidate],
    *,
    free_slots: int,
    free_blocks: int,
    max_displacements: int,
    margin: float | None = None,
) -> list[str]:
    """Sequences to displace, worst first: worst queue, then least waste.

    Claims are met from the best down, each from what is free before anybody is displaced, until
    one cannot be met (Algorithm 1, lines 33 to 38); nobody is displaced for that one. Calls that
    were displaced `max_displacements` times are left alone.
    """
    movable = sorted(
        (c for c in running if c.displaced < max_displacements),
        key=lambda c: (-c.queue, 0.0 if margin is None else -c.rank, c.waste, -c.order_in_queue),
    )
    victims: list[str] = []
    taken = 0
    for claim in sorted(waiting, key=lambda c: (c.queue, c.rank, c.order_in_queue)):
        slots, blocks, reach = free_slots, free_blocks, taken
        while (slots < 1 or blocks < claim.blocks) and reach < len(movable):
            victim = movable[reach]
            if not _gives_way(victim, claim, margin):
                break
            slots += 1
            blocks += victim.blocks
            reach += 1
        if slots < 1 or blocks < claim.blocks:
            break
        victims.extend(c.sequence for c in movable[taken:reach])
        free_slots, free_blocks, taken = slots - 1, blocks - claim.blocks, reach
    return victims


def _gives_way(victim: Candidate, claim: Claim, margin: float | None) -> bool:
    if claim.queue != victim.queue:
        return claim.queue < victim.queue
    return margin is not None and claim.rank + margin < victim.rank
