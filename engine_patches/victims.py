"""Which running sequences give way to waiting ones of a better queue. Pure.

Upstream never displaces a running request when `max_num_seqs` is reached; Algorithm 1 does, since
its batch is chosen from the best queue down. Only a strictly better queue displaces: two calls of
one queue never trade places, and a displaced call comes back only when somebody leaves or is
demoted below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence that waits or runs. computed_tokens: progress that displacing it would put at
    risk. displaced: how often its call has been displaced already."""

    sequence: str
    queue: int
    order_in_queue: int
    computed_tokens: int = 0
    displaced: int = 0


def choose_victims(
    waiting: Sequence[Candidate],
    running: Sequence[Candidate],
    free_slots: int,
    max_displacements: int,
) -> list[str]:
    """Sequences to displace, worst first: worst queue, then least progress lost.

    Each victim makes room for one waiting sequence of a strictly better queue that finds no free
    slot. Calls displaced `max_displacements` times are left alone.
    """
    claims = sorted(waiting, key=lambda c: (c.queue, c.order_in_queue))[max(0, free_slots) :]
    movable = sorted(
        (c for c in running if c.displaced < max_displacements),
        key=lambda c: (-c.queue, c.computed_tokens, -c.order_in_queue),
    )
    victims: list[str] = []
    for claim, victim in zip(claims, movable, strict=False):
        if claim.queue >= victim.queue:
            break
        victims.append(victim.sequence)
    return victims
