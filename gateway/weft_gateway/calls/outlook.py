"""Predicts calls before they are placed: their cost on each replica, and their budget."""

from __future__ import annotations

from dataclasses import dataclass

from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call
from weft_gateway.model import RouteRequest
from weft_gateway.policies.costs import cached_tokens
from weft_gateway.programs.table import ProcessTable


@dataclass(frozen=True, slots=True)
class Outlook:
    """Predicts calls that are about to be placed. budget: whether the balancer uses budgets."""

    budgets: Budgets
    table: ProcessTable
    budget: bool = True

    def predicted(self, call: Call, request: RouteRequest) -> RouteRequest:
        """Return the request with the call's costs and budget, as far as they are known."""
        if not call.endpoint.is_text:
            return request
        budgets, program, prompt = self.budgets, request.program, request.prompt_tokens
        expected, costs = budgets.expected(call, prompt), None
        if expected is not None:
            costs = budgets.costs.by_replica(
                call.model,
                [replica.name for replica in request.replicas],
                expected,
                cached_tokens(program, prompt, expected.cached_share, request.shared),
                self.table.work(),
            )
        budget = budgets.ahead(call, program, prompt) if self.budget else None
        # By position: keywords would double the cost.
        return RouteRequest(
            request.model,
            prompt,
            program,
            request.replicas,
            request.avoid,
            request.ordinal,
            request.shared,
            costs,
            None if budget is None else budget.budget_s,
        )
