"""Orders of single calls, for small batches. Pure.

The nested sequences of a plan treat all rows alike. The order with the least token steps often does
not: where an answer is awaited, another row's call with the same prefix may come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

Orders = tuple[tuple[int, ...], ...]
# Smaller gains may be errors of rounding.
_LEAST_GAIN: Final = 1e-9


def improved(orders: Sequence[Sequence[int]], cost: Callable[[Orders], float]) -> Orders:
    """Return orders in which no move of one call to another place on its replica gains anything.

    orders: the calls of each replica. cost: of such orders; ValueError if calls wait for each
    other. The best move is made first. Each of them takes as many evaluations as the square of the
    number of calls.
    """
    best = tuple(map(tuple, orders))
    least = cost(best)
    while True:
        found = [(_cost(moved, cost), moved) for moved in _moves(best)]
        gain, moved = min(found, default=(least, best))
        if gain >= least - _LEAST_GAIN:
            return best
        best, least = moved, gain


def _moves(orders: Orders) -> Iterator[Orders]:
    for at, order in enumerate(orders):
        for number, call in enumerate(order):
            rest = order[:number] + order[number + 1 :]
            for place in range(len(order)):
                if place != number:
                    moved = (*rest[:place], call, *rest[place:])
                    yield (*orders[:at], moved, *orders[at + 1 :])


def _cost(orders: Orders, cost: Callable[[Orders], float]) -> float:
    try:
        return cost(orders)
    except ValueError:
        return float("inf")
