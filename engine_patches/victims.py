"""Which running sequences give way to waiting ones that stand better. Pure.

Upstream never displaces a running request when `max_num_seqs` is reached, nor when a waiting one
finds no blocks; Algorithm 1 does both, since its batch is chosen from the best queue down. Only a
strictly better queue displaces (or, for orders by rank, a rank better by a margin): two calls of
one queue never trade places, and a displaced call comes back only when somebody leaves or falls
below it, which takes a whole quantum of service.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def slots_to_take(
    claims: Iterable[tuple[int, float]],
    running: Iterable[tuple[int, float]],
    margin: float | None = None,
) -> tuple[int, int]:
    """Where nobody is displaced for blocks: how many claims may each take the slot of a running
    sequence, and among how many of the running ones their victims are. Looks no further.

    claims: queue and rank of waiting sequences that find no slot free, the best first. running: of
    those that may be displaced, the worst first.
    """
    pairs = among = 0
    waiting, last, taking = iter(claims), None, True
    for queue, rank in running:
        alike = (queue, 0.0 if margin is None else rank)
        if taking:
            claim = next(waiting, None)
            taking = claim is not None and _outranks(claim, (queue, rank), margin)
            pairs += taking
            last = alike if taking else last
        # Of those who stand like the last one that of least waste is chosen.
        if alike != last:
            break
        among += 1
    return pairs, among


def _gives_way(victim: Candidate, claim: Claim, margin: float | None) -> bool:
    return _outranks((claim.queue, claim.rank), (victim.queue, victim.rank), margin)


def _outranks(claim: tuple[int, float], victim: tuple[int, float], margin: float | None) -> bool:
    if claim[0] != victim[0]:
        return claim[0] < victim[0]
    return margin is not None and claim[1] + margin < victim[1]
