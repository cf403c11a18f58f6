"""Rules for preemption of running sequences by waiting ones of better rank. Pure.

vLLM never preempts a running request because `max_num_seqs` is reached or a waiting request lacks
blocks. Algorithm 1 does both, because it fills its batch from the best queue down. Only a strictly
better queue preempts. So two calls of one queue never alternate: a preempted call resumes only
after a running call ends or falls below it, which takes a whole quantum of service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from weft_engine.call_state import Rank


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting sequence, and the free blocks that its admission takes."""

    sequence: str
    rank: Rank
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running sequence that may be preempted.

    waste: tokens that a preemption would compute again (in neither the cache nor the swap buffer).
    preemptions: past preemptions of its call. blocks: blocks that only it uses, so that a
    preemption frees them.
    """

    sequence: str
    rank: Rank
    waste: int = 0
    preemptions: int = 0
    blocks: int = 0


def meet_claims(
    waiting: Iterable[Claim],
    running: Sequence[Candidate],
    *,
    free_slots: int,
    free_blocks: int,
    max_displacements: int,
    most: int | None = None,
    blocks_of: Callable[[Candidate], int] = attrgetter("blocks"),
) -> list[tuple[str, list[str]]]:
    """Return the met claims, best first, each with its victims, worst first: worst queue, then
    least waste.

    waiting: best first. Claims are met in order, first from free slots and blocks and then by
    preemption, until one cannot be met (Algorithm 1, lines 33 to 38). That claim preempts no
    sequence, and later claims are not considered. Calls with `max_displacements` past preemptions
    are exempt. most: no further claim is considered after this many victims; None: no limit.
    blocks_of: the blocks that a candidate would free; called only if free slots do not suffice.
    """

    def worst_first(candidate: Candidate) -> tuple[float, ...]:
        queue, _, entry = candidate.rank
        return -queue, candidate.waste, -entry

    movable = [c for c in running if c.preemptions < max_displacements]
    movable.sort(key=worst_first)
    met: list[tuple[str, list[str]]] = []
    taken = 0
    # Victims with uncounted blocks.
    uncounted: list[Candidate] = []
    claims = iter(waiting)
    while most is None or taken < most:
        claim = next(claims, None)
        if claim is None:
            break
        slots, blocks, reach, owed = free_slots, free_blocks, taken, list(uncounted)
        while True:
            while blocks < claim.blocks and owed:
                blocks += blocks_of(owed.pop())
            if (slots >= 1 and blocks >= claim.blocks) or reach == len(movable):
                break
            victim = movable[reach]
            if claim.rank[0] >= victim.rank[0]:
                break
            slots += 1
            owed.append(victim)
            reach += 1
        if slots < 1 or blocks < claim.blocks:
            break
        met.append((claim.sequence, [c.sequence for c in movable[taken:reach]]))
        free_slots, free_blocks, taken, uncounted = slots - 1, blocks - claim.blocks, reach, owed
    return met
