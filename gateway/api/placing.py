"""A program's home chosen by where prompts that begin like its own were sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.api.body import is_skimmed
from gateway.api.services import Services
from gateway.api.turns import LIGHT_BYTES
from gateway.engine.beginnings import beginning_of
from gateway.model import Beginning, Decision, RouteRequest


def choose_home(
    services: Services,
    question: RouteRequest,
    decision: Decision,
    body: Mapping[str, Any],
    size: int,
    salt: str,
    now_s: float,
) -> tuple[Decision, Beginning | None]:
    """The decision again, with that in mind, and the prompt's beginning: whoever then opens the
    call tells `registry.beginnings` where it went.

    decision: the router's, of a call that gives its program a home; no other one is worth the time.
    size: of the body, bytes. salt: the tenant's. Where nothing is shared, or the prompt has not
    been read, the decision stays as it is.
    """
    s = services
    if size > LIGHT_BYTES and is_skimmed(body):
        return decision, None
    beginning = beginning_of(body, question.model, salt, size / question.prompt_tokens)
    if beginning is None:
        return decision, None
    shared = s.registry.beginnings.shared(beginning, decision.eligible)
    if shared is not None:
        decision = s.router.route(replace(question, shared=shared), now_s, s.rng)
    return decision, beginning
