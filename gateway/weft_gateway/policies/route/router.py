"""A router: filters, then weighted scorers, then a picker. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from weft_gateway.model import Decision, Intake, ReplicaView, RouteRequest
from weft_gateway.policies.route.filters import DRAINING, rejection
from weft_gateway.policies.route.pickers import Picker
from weft_gateway.policies.route.scorers import Scorer

SHARED: Final = "shared_prefix"
LAST: Final = "last_replica"
# The filter that removes a home at which the call would be late.
LATE: Final = "late"


@dataclass(frozen=True, slots=True)
class Router:
    """Chooses a replica and explains the choice.

    name: the reason for a call without a home. scorers: by name, for the explanation, each with its
    weight. sticky_above_tokens: longer calls ask the process table to keep them on
    their program's home (Algorithm 2, lines 5 to 10); None: never. shared: scorer of shared prompt
    prefixes, and its weight; used only if the request has that data. leaves: whether the program
    of a long call leaves its home. why: the reason for a choice by predicted costs.
    """

    name: str
    scorers: Mapping[str, tuple[Scorer, float]]
    picker: Picker
    sticky_above_tokens: int | None = None
    shared: tuple[Scorer, float] | None = None
    leaves: Callable[[RouteRequest, Sequence[ReplicaView]], bool] | None = None
    why: Callable[[RouteRequest, str], str] | None = None

    def route(self, request: RouteRequest, rng: Random) -> Decision:
        """Choose a replica from this snapshot. The table makes the final choice for sticky calls.
        The decision's replica is "" if no replica is eligible.
        """
        rejected: dict[str, str] = {}
        kept = []
        homes: frozenset[str] = frozenset()
        for replica in request.replicas:
            why = rejection(request, replica)
            if not why:
                kept.append(replica)
                continue
            rejected[replica.name] = why
            if why is DRAINING and replica.intake is Intake.HOMES:
                homes |= {replica.name}
        if not kept:
            return Decision("", False, frozenset(), "no replica is eligible", {}, rejected)
        above = self.sticky_above_tokens
        sticky = above is not None and request.prompt_tokens > above
        if sticky and self.leaves is not None and self.leaves(request, kept):
            assert request.program is not None
            rejected[request.program.home] = LATE
            kept = [replica for replica in kept if replica.name not in rejected]
        totals = dict.fromkeys([replica.name for replica in kept], 0.0)
        scores: dict[str, Mapping[str, float]] = {}
        scorers = self.scorers
        if request.shared is not None and self.shared is not None:
            scorers = {**scorers, SHARED: self.shared}
        for scorer, (scored, weight) in scorers.items():
            scores[scorer] = given = scored(request, kept)
            for name, score in given.items():
                if score:
                    totals[name] += weight * score
        chosen = self.picker(totals, request.ordinal, rng)
        eligible = frozenset(totals)
        at_home = sticky and request.program is not None and request.program.home == chosen
        return Decision(
            chosen,
            sticky,
            eligible,
            "home" if at_home else self._reason(request, chosen, scores, sticky),
            scores,
            rejected,
            sticky and not at_home,
            homes if sticky else frozenset(),
            request.costs,
            request.budget_s,
        )

    def _reason(
        self,
        request: RouteRequest,
        chosen: str,
        scores: Mapping[str, Mapping[str, float]],
        sticky: bool,
    ) -> str:
        """Return the reason for a replica that is not the home."""
        if self.why is not None:
            return self.why(request, chosen)
        shared = request.shared
        known = shared is not None and shared.tokens.get(chosen)
        if sticky and known and scores.get(SHARED, {}).get(chosen):
            return "shared prefix"
        if LAST in scores and scores[LAST][chosen] > 0:
            return "last replica"
        return "new home" if sticky else self.name
