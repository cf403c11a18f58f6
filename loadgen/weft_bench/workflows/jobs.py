"""Ten workflows for the placement of operators on workers that load models (Halo, Table 4).

W1 to W6 are Halo's (section 4.1, Table 2). The other four are common patterns with several models.
Halo does not publish its operators' times. Here a stage takes the time of its answer plus the time
of its rows in full batches, on an 8B and a 3B model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from weft_bench.planner.placement import Job, Node

# By model: seconds of an answer alone, seconds that a row adds in full batches, and seconds to load
# the model. Of the order of an 8B model on an H100 (its initialization in Halo's Figure 13: 22 s).
_MODELS: Final[Mapping[str, tuple[float, float, float]]] = {
    "8b": (4.0, 0.060, 22.0),
    "3b": (2.0, 0.025, 12.0),
    "r1": (10.0, 0.200, 22.0),
}
_REUSE: Final = 0.85


def _node(model: str, rows: int, rng: Random, *needs: int) -> Node:
    alone, each, load = _MODELS[model]
    factor = rng.uniform(0.7, 1.3)
    seconds = factor * (alone + rows * each)
    return Node(model, round(seconds, 3), load, tuple(needs), _REUSE if needs else 1.0)


def _chain(models: str) -> Callable[[int, Random], Job]:
    def made(rows: int, rng: Random) -> Job:
        names = models.split()
        return Job(
            tuple(_node(name, rows, rng, *((n - 1,) if n else ())) for n, name in enumerate(names))
        )

    return made


def _vote(models: str) -> Callable[[int, Random], Job]:
    """Voters side by side; the last model decides."""

    def made(rows: int, rng: Random) -> Job:
        *voters, judge = models.split()
        nodes = [_node(name, rows, rng) for name in voters]
        return Job((*nodes, _node(judge, rows, rng, *range(len(nodes)))))

    return made


def _diamonds(rows: int, rng: Random) -> Job:
    nodes = [_node("8b", rows, rng)]
    for _ in range(2):
        last = len(nodes) - 1
        nodes += [_node("8b", rows, rng, last), _node("3b", rows, rng, last)]
        nodes.append(_node("8b", rows, rng, last + 1, last + 2))
    return Job(tuple(nodes))


def _two_chains(rows: int, rng: Random) -> Job:
    nodes = [_node("8b", rows, rng), _node("3b", rows, rng)]
    for _ in range(2):
        nodes += [_node("8b", rows, rng, len(nodes) - 2), _node("3b", rows, rng, len(nodes) - 1)]
    return Job((*nodes, _node("8b", rows, rng, len(nodes) - 2, len(nodes) - 1)))


JOBS: Final[Mapping[str, Callable[[int, Random], Job]]] = {
    "W1 retrieval": _chain("8b 8b 8b"),
    "W2 critique": _chain("8b 8b 8b"),
    "W3 critique, two models": _chain("8b r1 8b"),
    "W4 vote": _vote("8b 8b 8b 8b"),
    "W5 vote, two models": _vote("3b 3b 8b r1"),
    "W6 dialogue": _chain("8b 8b 8b 8b"),
    "wide vote": _vote("8b 8b 8b 8b 3b 3b 8b"),
    "diamonds": _diamonds,
    "two chains": _two_chains,
    "three models": _chain("3b 8b r1 8b 3b"),
}
