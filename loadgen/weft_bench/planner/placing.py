"""Which replica serves which rows of which operators: balanced by predicted seconds. Pure.

Operators with the same eligible replicas form a group. A group's rows are cut into one range a
replica, in proportion to the replicas' speeds, so that the calls of a row stay together and share
prefixes. Helium slices evenly. With fewer rows than replicas, calls are placed by static prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft_run.plan.costs import Replica, call_seconds

from weft_bench.planner.problem import Operation


@dataclass(frozen=True, slots=True)
class Share:
    """The replicas of some operators. operators, replicas: numbers. bounds: rank of the row at
    which the next replica's rows begin, one fewer than replicas.
    """

    operators: tuple[int, ...]
    replicas: tuple[int, ...]
    bounds: tuple[int, ...]

    def rows(self, replica: int, rows: int) -> int:
        """Return the number of rows of a replica."""
        if replica not in self.replicas:
            return 0
        at = self.replicas.index(replica)
        ends = (*self.bounds, rows)
        return ends[at] - (ends[at - 1] if at else 0)

    def scaled(self, rows: int, fewer: int) -> Share:
        """Return the same share of fewer rows."""
        bounds = tuple(bound * fewer // rows for bound in self.bounds)
        return Share(self.operators, self.replicas, bounds)


def eligible(found: Sequence[Operation], replicas: Sequence[Replica]) -> list[tuple[int, ...]]:
    """Return the replicas that serve each operator's model. Raises ValueError if none does."""
    able = []
    for one in found:
        here = tuple(n for n, replica in enumerate(replicas) if replica.serves(one.model))
        if not here:
            known = sorted({model for replica in replicas for model in replica.models})
            raise ValueError(
                f"{one.name}: no replica serves {one.model!r}; served: {', '.join(known)}"
            )
        able.append(here)
    return able


def place_rows(
    found: Sequence[Operation],
    rows: int,
    replicas: Sequence[Replica],
    able: Sequence[tuple[int, ...]],
    first: Sequence[int],
    whole: bool = True,
) -> tuple[Share, ...]:
    """Return the shares. first: the order in which equal replicas are considered. whole: all
    operators of a group have the same rows; otherwise the rows between two replicas are divided by
    static prefix, which balances a few rows better.
    """
    costs = [row_seconds(found, replica) for replica in replicas]
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, here in enumerate(able):
        groups.setdefault(here, []).append(number)
    load = [0.0] * len(replicas)
    shares: list[Share] = []
    # The groups with the fewest choices first; the others fill up the rest.
    for here, numbers in sorted(groups.items(), key=lambda group: (len(group[0]), group[1])):
        order = [at for at in first if at in here]
        if rows >= len(here):
            each = {at: sum(costs[at][number] for number in numbers) for at in order}
            before, paces = [load[at] for at in order], [each[at] for at in order]
            exact = levelled(rows, before, paces)
            for at, count in zip(order, exact, strict=True):
                load[at] += count * each[at]
            if whole:
                shares.append(_share(numbers, order, filled(rows, before, paces)))
            else:
                shares += _divided(found, numbers, rows, order, exact, costs)
        else:
            shares += _by_prefix(found, numbers, rows, order, costs, load)
    return tuple(sorted(shares, key=lambda share: share.operators))


def row_seconds(found: Sequence[Operation], replica: Replica) -> list[float]:
    """Return the seconds that a row of each operator costs on a full replica. Static prefixes and
    what earlier operators of the row have computed are cached.
    """
    mean = sum(one.prompt + one.answer for one in found) / max(1, len(found))
    beside = replica.fits(mean)
    seen: set[int] = set()
    costs = []
    for one in found:
        fresh = sum(p.tokens for p in one.path if p.axes and p.node not in seen)
        seen.update(piece.node for piece in (*one.path, *one.trail))
        cost = call_seconds(replica.costs.steps, fresh, one.prompt, one.answer, beside)
        costs.append(max(cost, 1e-9) * one.copies)
    return costs


def levelled(rows: int, load: Sequence[float], each: Sequence[float]) -> list[float]:
    """Divide rows, also in parts, so that replicas end together (water-filling): replicas whose
    load is above the common end get none. load: seconds of work that each has already. each:
    seconds of a row there.
    """
    active = sorted(range(len(load)), key=lambda at: (load[at], at))
    level, used = 0.0, 0
    speed = done = 0.0
    for count, at in enumerate(active, 1):
        if used and load[at] >= level:
            break
        speed += 1 / each[at]
        done += load[at] / each[at]
        used = count
        level = (rows + done) / speed
    some = set(active[:used])
    return [
        max(0.0, (level - load[at]) / each[at]) if at in some else 0.0 for at in range(len(load))
    ]


def filled(rows: int, load: Sequence[float], each: Sequence[float]) -> list[int]:
    """Divide whole rows as `levelled`. The sum of the result is `rows`."""
    exact = levelled(rows, load, each)
    parts = [int(one) for one in exact]
    rest = sorted(range(len(load)), key=lambda at: (parts[at] - exact[at], at))
    for at in rest[: rows - sum(parts)]:
        parts[at] += 1
    return parts


def _share(numbers: Sequence[int], order: Sequence[int], parts: Sequence[int]) -> Share:
    used = [(at, count) for at, count in zip(order, parts, strict=True) if count]
    bounds, passed = [], 0
    for _, count in used[:-1]:
        passed += count
        bounds.append(passed)
    return Share(tuple(numbers), tuple(at for at, _ in used), tuple(bounds))


def _divided(
    found: Sequence[Operation],
    numbers: Sequence[int],
    rows: int,
    order: Sequence[int],
    exact: Sequence[float],
    costs: Sequence[Sequence[float]],
) -> list[Share]:
    """Return one share for each prefix. Its bounds are rounded up or down, so that the work of all
    is divided as exactly as possible.
    """
    used = [(at, part) for at, part in zip(order, exact, strict=True) if part > 0]
    ends = [sum(part for _, part in used[: k + 1]) for k in range(len(used) - 1)]
    missing = [0.0] * len(ends)
    shares = []
    for group in sorted(
        _prefixes(found, numbers), key=lambda one: (-_work(costs[order[0]], one), one)
    ):
        work = _work(costs[order[0]], group)
        bounds: list[int] = []
        for at, end in enumerate(ends):
            bound = int(end) + (missing[at] + work * (end - int(end)) >= work / 2)
            bound = max(bounds[-1] if bounds else 0, min(rows, bound))
            missing[at] += work * (end - bound)
            bounds.append(bound)
        shares.append(Share(tuple(group), tuple(at for at, _ in used), tuple(bounds)))
    return shares


def _prefixes(found: Sequence[Operation], numbers: Sequence[int]) -> list[list[int]]:
    """Return the operators grouped by the first node of the tree."""
    groups: dict[int, list[int]] = {}
    for number in numbers:
        path = found[number].path
        groups.setdefault(path[0].node if path else 0, []).append(number)
    return list(groups.values())


def _work(costs: Sequence[float], group: Sequence[int]) -> float:
    return sum(costs[number] for number in group)


def _by_prefix(
    found: Sequence[Operation],
    numbers: Sequence[int],
    rows: int,
    order: Sequence[int],
    costs: Sequence[Sequence[float]],
    load: list[float],
) -> list[Share]:
    """Place operators with one first node of the tree together, the most expensive ones first, each
    where it ends first.
    """
    shares = []
    groups = _prefixes(found, numbers)
    for group in sorted(groups, key=lambda one: (-_work(costs[order[0]], one), one)):
        at = min(order, key=lambda at: load[at] + rows * _work(costs[at], group))
        load[at] += rows * _work(costs[at], group)
        shares.append(Share(tuple(group), (at,), ()))
    return shares
