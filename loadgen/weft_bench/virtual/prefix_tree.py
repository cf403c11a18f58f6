"""Baseline balancer: a global tree of the prefixes sent to each replica.

Modelled on Preble (Srivatsa et al., 2024) as Agentix 6.4 summarizes it: a call with a long known
prefix goes to the replica that has most of it, other calls to the least used replica.

It sees every call, but no programs, and ignores the load of the replica with the longest prefix.
`weft_gateway.policies.route.prefixes` has the gateway's own rule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from weft_bench.workloads.schema import Part


class PrefixTree:
    """The prefixes sent to each replica, within the capacity of its cache.

    room: tokens of KV cache for each replica; beyond that the least recently used prefixes count as
    evicted. Answers enter the tree when a later prompt contains them.
    """

    def __init__(self, room: Mapping[str, int]) -> None:
        self._room = room
        # For each replica: hash of a prefix's parts to the tokens of its last part, least recently
        # used first.
        self._held: dict[str, OrderedDict[int, int]] = {name: OrderedDict() for name in room}
        self._used = dict.fromkeys(room, 0)

    def away(self, parts: Sequence[Part]) -> frozenset[str]:
        """Return the replicas to avoid for a prompt.

        If some replica has more than half of the prompt, these are all replicas that have less than
        the most. Otherwise empty.
        """
        prefixes = _prefixes(parts)
        known = {name: self._known(name, prefixes, parts) for name in self._room}
        most = max(known.values())
        if 2 * most <= sum(part.tokens for part in parts):
            return frozenset()
        return frozenset(name for name, tokens in known.items() if tokens < most)

    def sent(self, replica: str, parts: Sequence[Part]) -> None:
        """Record that a prompt went to a replica."""
        held = self._held[replica]
        # Each prefix is used with all that follows it, so the first part is evicted last.
        for prefix, part in reversed(list(zip(_prefixes(parts), parts, strict=True))):
            if prefix not in held:
                self._used[replica] += part.tokens
                held[prefix] = part.tokens
            held.move_to_end(prefix)
        while self._used[replica] > self._room[replica]:
            _, tokens = held.popitem(last=False)
            self._used[replica] -= tokens

    def _known(self, replica: str, prefixes: Sequence[int], parts: Sequence[Part]) -> int:
        held = self._held[replica]
        tokens = 0
        for prefix, part in zip(prefixes, parts, strict=True):
            if prefix not in held:
                break
            tokens += part.tokens
        return tokens


def _prefixes(parts: Sequence[Part]) -> list[int]:
    """Return a hash for each prefix, made of its last part and the prefix before."""
    # Text hashes differ between processes. This is safe because the hashes are only looked up,
    # never stored or sorted.
    return list(accumulate((hash(part) for part in parts), lambda before, one: hash((before, one))))
