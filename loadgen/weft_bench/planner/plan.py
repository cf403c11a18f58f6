"""The plan of a batch: a replica and a turn for each operator in each row. Pure.

The planner goes beyond Helium's schedule in seconds on the given replicas: it predicts candidate
orders (`predict`), places rows so that unequal replicas end together, and keeps the fastest. A plan
is symbolic over rows: its size and the planning time do not grow with their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf
from random import Random
from typing import Final

import msgspec
from weft_gateway.policies.batch_window import AHEAD
from weft_run.plan.calls import PlannedCall
from weft_run.plan.costs import Replica
from weft_run.plan.prompts import BLOCK_TOKENS

from weft_bench.planner.orders import Lane, Order, lanes, orders
from weft_bench.planner.placing import Share, eligible, place_rows
from weft_bench.planner.predict import Prediction, predict
from weft_bench.planner.problem import Operation, Rows, expand, operations
from weft_bench.planner.radix import build_tree, dependencies
from weft_bench.planner.single import Orders, improved, shuffled
from weft_bench.planner.token_steps import Worker, token_steps

# Calls that a prediction plays on each replica: a quarter of the batch within these limits. Further
# rows are extrapolated.
_SAMPLE_CALLS: Final = (264, 2048)
# Batches of at most this many calls also have an order of single calls: planning takes up to 0.3 s.
_SINGLE: Final = 16
# Random orders that are improved there, too: the others may all lead to one local optimum.
_RANDOM: Final = 4
# With at most this many rows a replica, a row more on one of them is worth avoiding.
_FEW: Final = 32


@dataclass(frozen=True)
class Plan:
    """A plan.

    operators: their names. rows: their number. row_order: columns to sort the rows by, so that rows
    that share a prefix are neighbours; a row's rank is its place in this order. shares: the
    replicas of operators. lanes: the order on each replica. windows: calls that each replica gets
    at once. seconds, hit_rate: as predicted. turns: those of single calls, row by row; empty if
    the lanes have them.
    """

    operators: tuple[str, ...]
    rows: int
    row_order: tuple[str, ...]
    replicas: tuple[str, ...]
    shares: tuple[Share, ...]
    lanes: tuple[Lane, ...]
    windows: tuple[int, ...]
    order: str
    seconds: float
    hit_rate: float
    turns: tuple[int, ...] = ()

    @cached_property
    def _share_of(self) -> dict[int, Share]:
        return {number: share for share in self.shares for number in share.operators}

    @cached_property
    def _number(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.operators)}

    def turn(self, operator: str, rank: int) -> tuple[str, int]:
        """Return the replica of an operator in a row, and its turn there. Calls of a replica are
        sent in the order of their turns, as far as their inputs are there. Calls of one operator in
        one row have the same turn. Raises KeyError for an unknown operator, IndexError for a rank
        beyond the rows.
        """
        at, turn = self.numbered(self._number[operator], rank)
        return self.replicas[at], turn

    def numbered(self, number: int, rank: int) -> tuple[int, int]:
        """Return `turn` with the numbers of operator and replica."""
        if not 0 <= rank < self.rows:
            raise IndexError(f"row {rank} is beyond the {self.rows} rows of the plan")
        share = self._share_of[number]
        at = bisect_right(share.bounds, rank)
        start = share.bounds[at - 1] if at else 0
        place = share.replicas[at]
        if self.turns:
            return place, self.turns[rank * len(self.operators) + number]
        return place, self.lanes[place].turn(number, rank - start)

    def calls(self, replica: str) -> Iterator[tuple[str, int]]:
        """Yield the calls of a replica in order, as operator and rank. Lists all rows: use it for
        small plans.
        """
        at = self.replicas.index(replica)
        found = [
            (self.numbered(number, rank), name, rank)
            for rank in range(self.rows)
            for number, name in enumerate(self.operators)
        ]
        for (_, _), name, rank in sorted(one for one in found if one[0][0] == at):
            yield name, rank

    def encode(self) -> bytes:
        """Return the plan as JSON. Equal plans have equal bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        """Read `encode`. Raises msgspec.ValidationError."""
        return msgspec.json.decode(data, type=cls)


def plan(
    calls: Sequence[PlannedCall],
    rows: int,
    replicas: Sequence[Replica],
    distinct: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Plan:
    """Return the plan with the least predicted time.

    calls: in topological order. distinct: distinct values of a column over the rows. seed: breaks
    ties between equal replicas; the same arguments give the same bytes. Raises ValueError for no
    replicas, for a model that no replica serves, for rows below 1, and for dependencies that are
    not in topological order.
    """
    return min(candidates(calls, rows, replicas, distinct, seed), key=_by_seconds)


def candidates(
    calls: Sequence[PlannedCall],
    rows: int,
    replicas: Sequence[Replica],
    distinct: Mapping[str, int] | None = None,
    seed: int = 0,
) -> list[Plan]:
    """Return the plans from which `plan` chooses, with its arguments and errors."""
    if rows < 1:
        raise ValueError(f"a plan needs at least 1 row, got {rows}")
    if not replicas:
        raise ValueError("a plan needs at least 1 replica")
    # Raises ValueError for an order that is not topological.
    dependencies(calls)
    block = max((one.block for one in replicas), default=BLOCK_TOKENS)
    tree = build_tree(calls, block=block)
    found = operations(calls, tree)
    able = eligible(found, replicas)
    first = list(range(len(replicas)))
    Random(seed).shuffle(first)
    values = dict(distinct or {})
    shares = place_rows(found, rows, replicas, able, first)
    windows = tuple(_window(found, shares, at, one) for at, one in enumerate(replicas))
    worker = Worker(min(one.kv_tokens for one in replicas))
    empty = Plan(
        operators=tuple(one.name for one in found),
        rows=rows,
        row_order=row_order(found, values),
        replicas=tuple(one.name for one in replicas),
        shares=shares,
        lanes=(),
        windows=windows,
        order="",
        seconds=inf,
        hit_rate=0.0,
    )
    listed = [one for one in orders(calls, worker, found, block) if one.block < rows]
    made = [_ordered(empty, one, found, replicas, values) for one in listed]
    divided = place_rows(found, rows, replicas, able, first, whole=False)
    differs = {one.bounds for one in divided} != {one.bounds for one in shares}
    if rows <= _FEW * len(replicas) and differs:
        best = min(made, key=_by_seconds)
        chosen = next(one for one in listed if one.name == best.order)
        made.append(_ordered(replace(empty, shares=divided), chosen, found, replicas, values))
    if rows * len(found) <= _SINGLE:
        made.append(_single(made, calls, found, replicas, values, Random(seed)))
    return made


def _by_seconds(made: Plan) -> float:
    return made.seconds


def _ordered(
    empty: Plan,
    order: Order,
    found: Sequence[Operation],
    replicas: Sequence[Replica],
    distinct: Mapping[str, int],
) -> Plan:
    """Return a plan with this order and its predicted time."""
    made = replace(empty, lanes=lanes(order, empty.shares, empty.rows, len(replicas)))
    return _timed(replace(made, order=order.name), found, replicas, distinct)


def _single(
    made: Sequence[Plan],
    calls: Sequence[PlannedCall],
    found: Sequence[Operation],
    replicas: Sequence[Replica],
    distinct: Mapping[str, int],
    rng: Random,
) -> Plan:
    """Return the plan with the least token steps after moving single calls, in the orders of these
    and in random ones.
    """
    number = {name: at for at, name in enumerate(made[0].operators)}
    closure = [sorted(number[need] for need in needs) for needs in dependencies(calls).values()]
    block = max(one.block for one in replicas)
    batch = expand(found, closure, Rows(made[0].rows, distinct), block)
    workers = [Worker(one.kv_tokens) for one in replicas]

    def steps(orders: Orders) -> float:
        return token_steps(orders, batch.answers, batch.needs, batch.prefill, workers)

    def of(one: Plan) -> Orders:
        return tuple(
            tuple(rank * len(found) + number[name] for name, rank in one.calls(replica))
            for replica in one.replicas
        )

    starts = {of(one): one for one in reversed(made)}
    starts |= {shuffled(of(made[0]), batch.needs, rng): made[0] for _ in range(_RANDOM)}
    moved = {start: improved(start, steps) for start in starts}
    best = min(starts, key=lambda start: (steps(moved[start]), start))
    turns = {call: turn for order in moved[best] for turn, call in enumerate(order)}
    by_call = tuple(turns[call] for call in sorted(turns))
    chosen = replace(starts[best], order="single calls", turns=by_call)
    return _timed(chosen, found, replicas, distinct)


def _timed(
    made: Plan, found: Sequence[Operation], replicas: Sequence[Replica], distinct: Mapping[str, int]
) -> Plan:
    """Return a plan with its predicted time."""
    predicted = predicted_plan(made, found, replicas, distinct)
    return replace(
        made,
        seconds=round(predicted.seconds, 6),
        hit_rate=round(predicted.hit_rate, 6),
    )


def row_order(found: Sequence[Operation], distinct: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns to sort rows by: those with repeated values, the longest shared prefixes
    first.
    """
    weight: dict[str, int] = {}
    for one in found:
        for piece in one.path:
            for axis in piece.axes:
                if axis in distinct:
                    weight[axis] = weight.get(axis, 0) + piece.tokens
    return tuple(sorted(weight, key=lambda axis: (-weight[axis], axis)))


def predicted_plan(
    made: Plan, found: Sequence[Operation], replicas: Sequence[Replica], distinct: Mapping[str, int]
) -> Prediction:
    """Predict a plan. If the batch is large, its first rows on each replica stand for all."""
    per_row = max(1, sum(one.copies for one in found))
    kept = _representatives(made, replicas)
    least, limit = _SAMPLE_CALLS
    sample = max(least, min(limit, made.rows * per_row // 4))
    most = max(2 * len(replicas), ceil(sample * len(replicas) / per_row))
    rows = min(made.rows, most)
    small, fewer = made, dict(distinct)
    if rows < made.rows:
        shares = tuple(one.scaled(made.rows, rows) for one in made.shares)
        small = replace(made, rows=rows, shares=shares)
        fewer = {axis: max(1, round(n * rows / made.rows)) for axis, n in distinct.items()}
    ranks = [rank for rank in range(rows) if kept is None or small.numbered(0, rank)[0] in kept]
    played = predict(found, Rows(rows, fewer), replicas, small.numbered, made.windows, ranks)
    seconds = played.seconds + (made.rows - rows) / rows * len(ranks) * played.per_row_s
    return replace(played, seconds=seconds)


def _representatives(made: Plan, replicas: Sequence[Replica]) -> set[int] | None:
    """Return one replica of each kind if no call depends on another replica: equal replicas with
    equal numbers of rows take the same time. None if all must be played.
    """
    if len(made.shares) > 1:
        return None
    (share,) = made.shares
    kinds: dict[object, int] = {}
    for at in sorted(share.replicas, key=lambda one: -share.rows(one, made.rows)):
        one = replicas[at]
        kinds.setdefault((one.costs, one.block), at)
    return set(kinds.values())


def _window(found: Sequence[Operation], shares: Sequence[Share], at: int, replica: Replica) -> int:
    """Return the calls that a replica gets at once, by slots and by room for their contexts."""
    here = [number for share in shares if at in share.replicas for number in share.operators]
    sizes = [found[number].prompt + found[number].answer for number in here] or [1.0]
    most = replica.fits(sum(sizes) / len(sizes))
    return max(1, int(AHEAD * min(replica.slots, most)))
