"""A router: filters, then weighted scorers, then a picker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from weft_gateway.model import Decision, RouteRequest
from weft_gateway.policies.route.protocols import Filter, Picker, Scorer


@dataclass(frozen=True, slots=True)
class Router:
    """Chooses a replica and explains the choice.

    name: the reason for a call without a home. sticky_above_tokens: longer calls ask the process
    table to keep them on their program's home (Algorithm 2, lines 5 to 10); None: never. shared:
    scorer of shared prompt prefixes, and its weight; used only if the request has that data.
    """

    name: str
    filters: tuple[Filter, ...]
    scorers: tuple[tuple[Scorer, float], ...]
    picker: Picker
    sticky_above_tokens: int | None = None
    shared: tuple[Scorer, float] | None = None

    def route(self, request: RouteRequest, now_s: float, rng: Random) -> Decision:
        """Choose a replica from this snapshot. The table makes the final choice for sticky calls.

        now_s: Unix time, seconds; part of every policy's interface, unused by the current routers.
        The decision's replica is "" if no replica is eligible.
        """
        rejected: dict[str, str] = {}
        kept = []
        for replica in request.replicas:
            for filter_ in self.filters:
                if not filter_.keeps(request, replica):
                    rejected[replica.name] = filter_.name
                    break
            else:
                kept.append(replica)
        if not kept:
            return Decision("", False, frozenset(), "no replica is eligible", {}, rejected)
        totals = dict.fromkeys([replica.name for replica in kept], 0.0)
        scores = {}
        scorers = self.scorers
        if request.shared is not None and self.shared is not None:
            scorers = (*scorers, self.shared)
        for scorer, weight in scorers:
            scores[scorer.name] = given = scorer.scores(request, kept)
            for name in totals:
                totals[name] += weight * given[name]
        chosen = self.picker.pick(totals, request.ordinal, rng)
        eligible = frozenset(totals)
        if self.sticky_above_tokens is None or request.prompt_tokens <= self.sticky_above_tokens:
            return Decision(chosen, False, eligible, self.name, scores, rejected)
        if request.program is not None and request.program.home == chosen:
            return Decision(chosen, True, eligible, "home", scores, rejected)
        reason, shared = "new home", request.shared
        if shared is not None and shared.tokens.get(chosen) and scores[scorers[-1][0].name][chosen]:
            reason = "shared prefix"
        return Decision(chosen, True, eligible, reason, scores, rejected, True)
