"""Orders of single calls, for small batches. Pure.

The nested sequences of a plan treat all rows alike. The order with the least token steps often does
not: where an answer is awaited, another row's call with the same prefix may come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

# The calls of each replica.
Orders = tuple[tuple[int, ...], ...]
# Of orders. ValueError if calls wait for each other.
Cost = Callable[[Orders], float]
# Smaller gains may be errors of rounding.
_LEAST_GAIN: Final = 1e-9


def improved(start: Orders, cost: Cost) -> Orders:
    """Return orders in which no move of one call to another place on its replica gains anything.

    The best move is made first. Each of them takes as many evaluations as the square of the number
    of calls.
    """
    best, least = start, cost(start)
    while True:
        found = [(_cost(moved, cost), moved) for moved in _moves(best)]
        gain, moved = min(found, default=(least, best))
        if gain >= least - _LEAST_GAIN:
            return best
        best, least = moved, gain


def shuffled(orders: Orders, needs: Sequence[Sequence[int]], rng: Random) -> Orders:
    """Return the same calls of each replica in a random order, each after those that it needs."""
    left, place = set(range(len(needs))), dict[int, int]()
    while left:
        ready = [call for call in sorted(left) if left.isdisjoint(needs[call])]
        call = rng.choice(ready)
        place[call] = len(place)
        left.remove(call)
    return tuple(tuple(sorted(order, key=place.__getitem__)) for order in orders)


def _moves(orders: Orders) -> Iterator[Orders]:
    for at, order in enumerate(orders):
        for number, call in enumerate(order):
            rest = order[:number] + order[number + 1 :]
            for place in range(len(order)):
                if place != number:
                    moved = (*rest[:place], call, *rest[place:])
                    yield (*orders[:at], moved, *orders[at + 1 :])


def _cost(orders: Orders, cost: Cost) -> float:
    try:
        return cost(orders)
    except ValueError:
        return float("inf")
