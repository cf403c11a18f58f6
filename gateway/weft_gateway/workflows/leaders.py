"""Static prefixes that are computed once, before the calls that share them. Pure.

On a cold replica, calls that begin together all compute the same prefix: none finds it in the
cache. One leading call computes it first (Helium's precomputation). A prefix whose uses are further
apart than the cache is long is also pinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_gateway.workflows.costs import Replica
from weft_gateway.workflows.placing import Share
from weft_gateway.workflows.problem import Operation

# Shorter prefixes are computed with the calls, in tokens (Helium annotates prefixes over 200).
MIN_TOKENS: Final = 200
# Pinned prefixes have at most this share of a replica's cache.
_PINNED: Final = 0.25


@dataclass(frozen=True, slots=True)
class Leader:
    """A static prefix. operator: the number of an operator whose prompts begin with it. tokens: its
    length. node: of the radix tree. replicas: those that serve at least two calls with it. after:
    place of the leader with the longest prefix of this one, -1 without one. pin: whether it should
    be pinned until the last of these calls.
    """

    operator: int
    tokens: int
    node: int
    replicas: tuple[int, ...]
    after: int
    pin: bool


def leaders(
    found: Sequence[Operation],
    shares: Sequence[Share],
    rows: int,
    replicas: Sequence[Replica],
    windows: Sequence[int],
) -> tuple[Leader, ...]:
    """Return the leaders, parents first."""
    uses: dict[int, dict[int, int]] = {}
    ends: dict[int, int] = {}
    carrier: dict[int, int] = {}
    parents: dict[int, int] = {}
    share_of = {number: share for share in shares for number in share.operators}
    for number, one in enumerate(found):
        last = -1
        for piece in one.path:
            if piece.axes:
                break
            parents[piece.node], last = last, piece.node
            ends[piece.node] = piece.end
            carrier.setdefault(piece.node, number)
        if last < 0:
            continue
        share = share_of[number]
        for at in share.replicas:
            count = share.rows(at, rows) * one.copies
            counts = uses.setdefault(last, {})
            counts[at] = counts.get(at, 0) + count
    # The prefix of a leader that would compute less than the minimum beyond its parent is left out.
    made: list[Leader] = []
    place: dict[int, int] = {}
    reserved = [0] * len(replicas)
    for node in sorted(uses, key=lambda one: (ends[one], one)):
        after, known = _longest(node, parents, place), 0
        if after >= 0:
            known = made[after].tokens
        here = tuple(at for at, count in sorted(uses[node].items()) if count > 1)
        if ends[node] - known < MIN_TOKENS or not here:
            continue
        pin = _far_apart(found, node, here, replicas, windows)
        if pin:
            pin = all(reserved[at] + ends[node] <= _PINNED * replicas[at].kv_tokens for at in here)
        if pin:
            for at in here:
                reserved[at] += ends[node]
        place[node] = len(made)
        made.append(Leader(carrier[node], ends[node], node, here, after, pin))
    return tuple(made)


def _longest(node: int, parents: dict[int, int], place: dict[int, int]) -> int:
    at = parents[node]
    while at >= 0:
        if at in place:
            return place[at]
        at = parents[at]
    return -1


def _far_apart(
    found: Sequence[Operation],
    node: int,
    here: Sequence[int],
    replicas: Sequence[Replica],
    windows: Sequence[int],
) -> bool:
    """Return whether a window of calls between two uses fills the cache."""
    using = sum(any(piece.node == node for piece in one.path) for one in found)
    between = len(found) / max(1, using)
    size = sum(one.prompt + one.answer for one in found) / len(found)
    return any(windows[at] * between * size > replicas[at].kv_tokens for at in here)
