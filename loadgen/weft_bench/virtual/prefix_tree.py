"""A balancer to compare with: a global tree of the prefixes that each replica was sent, as Preble's
(Srivatsa et al., 2024), in the few words that Agentix 6.4 has for it: calls whose known prefix is
long go where most of it is, the others to the replica that is used least.

It looks at every call, and knows nothing of programs, nor of the load where one replica has most;
what the gateway knows of prompts, and when it looks, is in
`weft_gateway.policies.route.prefixes`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from weft_bench.workloads.schema import Part


class PrefixTree:
    """What each replica was sent, as far as its cache can hold it.

    room: replica to the tokens that its KV cache has room for; beyond them what was used longest
    ago is taken for evicted. Answers are not in the tree before they return in a prompt.
    """

    def __init__(self, room: Mapping[str, int]) -> None:
        self._room = room
        # By replica: a prefix, known by a hash of all its parts, to its last part's tokens; what
        # was used last stands last.
        self._held: dict[str, OrderedDict[int, int]] = {name: OrderedDict() for name in room}
        self._used = dict.fromkeys(room, 0)

    def away(self, parts: Sequence[Part]) -> frozenset[str]:
        """The replicas that a prompt should not go to: those that hold less of it than others do,
        where these hold more than half."""
        prefixes = _prefixes(parts)
        known = {name: self._known(name, prefixes, parts) for name in self._room}
        most = max(known.values())
        if 2 * most <= sum(part.tokens for part in parts):
            return frozenset()
        return frozenset(name for name, tokens in known.items() if tokens < most)

    def sent(self, replica: str, parts: Sequence[Part]) -> None:
        """A prompt went to a replica."""
        held = self._held[replica]
        # The beginning is used with all that follows, so it is the last to be evicted.
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
    """A hash of each prefix: of its last part and of the prefix before."""
    # Only looked up, never stored or ordered by: that text hashes differently in each process
    # changes nothing.
    return list(accumulate((hash(part) for part in parts), lambda before, one: hash((before, one))))
