"""Which running sequences give way to waiting ones that stand better. Pure.

Upstream never displaces a running request when `max_num_seqs` is reached, nor when a waiting one
finds no blocks; Algorithm 1 does both, since its batch is chosen from the best queue down. Only a
strictly better queue displaces (or, for orders by rank, a rank better by a margin): two calls of
one queue never trade places, and a displaced call comes back only when somebody leaves or falls
below it, which takes a whole quantum of service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter


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
    preemptions: int = 0
    blocks: int = 0


def choose_victims(
    waiting: Iterable[Claim],
    running: Sequence[Candidate],
    *,
    free_slots: int,
    free_blocks: int,
    max_displacements: int,
    margin: float | None = None,
) -> list[str]:
    """The victims of `meet_claims`, in its order. waiting: in any order."""
    met = meet_claims(
        sorted(waiting, key=lambda c: (c.queue, c.rank, c.order_in_queue)),
        running,
        free_slots=free_slots,
        free_blocks=free_blocks,
        max_displacements=max_displacements,
        margin=margin,
    )
    return [victim for _, victims in met for victim in victims]


def meet_claims(
    waiting: Iterable[Claim],
    running: Sequence[Candidate],
    *,
    free_slots: int,
    free_blocks: int,
    max_displacements: int,
    margin: float | None = None,
    blocks_of: Callable[[Candidate], int] = attrgetter("blocks"),
) -> list[tuple[str, list[str]]]:
    """Claims that are met, the best first, each with the sequences to displace for it, worst first:
    worst queue, then least waste.

    waiting: the best first. Claims are met from the best down, each from what is free before
    anybody is displaced, until one cannot be met (Algorithm 1, lines 33 to 38); nobody is displaced
    for that one, and no later claim is asked for. Calls that were displaced `max_displacements`
    times are left alone. blocks_of: the blocks that a candidate would free; asked only of those
    whose slots are not enough.
    """
    movable = sorted(
        (c for c in running if c.preemptions < max_displacements),
        key=lambda c: (-c.queue, 0.0 if margin is None else -c.rank, c.waste, -c.order_in_queue),
    )
    met: list[tuple[str, list[str]]] = []
    taken = 0
    # Victims whose blocks have not been counted yet.
    uncounted: list[Candidate] = []
    for claim in waiting:
        slots, blocks, reach, owed = free_slots, free_blocks, taken, list(uncounted)
        while True:
            while blocks < claim.blocks and owed:
                blocks += blocks_of(owed.pop())
            if (slots >= 1 and blocks >= claim.blocks) or reach == len(movable):
                break
            victim = movable[reach]
            if not _gives_way(victim, claim, margin):
                break
            slots += 1
            owed.append(victim)
            reach += 1
        if slots < 1 or blocks < claim.blocks:
            break
        met.append((claim.sequence, [c.sequence for c in movable[taken:reach]]))
        free_slots, free_blocks, taken, uncounted = slots - 1, blocks - claim.blocks, reach, owed
    return met


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
            taking = claim is not None and outranks(claim, (queue, rank), margin)
            pairs += taking
            last = alike if taking else last
        # Of those who stand like the last one that of least waste is chosen.
        if alike != last:
            break
        among += 1
    return pairs, among


def _gives_way(victim: Candidate, claim: Claim, margin: float | None) -> bool:
    return outranks((claim.queue, claim.rank), (victim.queue, victim.rank), margin)


def outranks(claim: tuple[int, float], victim: tuple[int, float], margin: float | None) -> bool:
    """Whether a claim of this queue and rank displaces a victim of that queue and rank."""
    if claim[0] != victim[0]:
        return claim[0] < victim[0]
    return margin is not None and claim[1] + margin < victim[1]
