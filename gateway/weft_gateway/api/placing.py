"""What placing a call goes by: how long its prompt is, and where prompts went that begin alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft_gateway.api.body import is_skimmed
from weft_gateway.api.request import Request
from weft_gateway.api.services import Services
from weft_gateway.api.turns import LIGHT_BYTES
from weft_gateway.engine.beginnings import beginning_of
from weft_gateway.engine.tokens import Counted
from weft_gateway.model import Beginning, Decision, RouteRequest
from weft_gateway.policies.tags_sections import is_otherwise, sections, visible


def prompt_tokens(services: Services, request: Request) -> int:
    """How long a call's prompt is, tokens, for the router.

    A body of fewer bytes than a long prompt has tokens is not looked into. Otherwise the messages
    are counted (`weft_gateway.engine.tokens`), pictures apart; only prompts without messages go by
    the bytes that such prompts have had for each token.
    """
    s, size = services, len(request.raw)
    long = s.router.sticky_above_tokens
    if long is None or size <= long:
        return s.estimator.estimate(request.model, size)
    counted = count(s, request)
    if not counted.ends and is_otherwise(request.body):
        counted = s.tokens.count(request.model, visible(request.body))
    return counted.tokens if counted.ends else s.estimator.estimate(request.model, size)


def count(services: Services, request: Request) -> Counted:
    """The request's prompt, counted once. Without sections where it is not in the body."""
    if request.counted is None:
        request.sections = sections(request.body)
        request.counted = services.tokens.count(request.model, request.sections)
    return request.counted


def taught_bytes(request: Request) -> int:
    """The bytes that tell what a token of a raw prompt takes; 0 for a call that does not tell."""
    body = request.body
    if "messages" in body:
        return 0
    prompt = body.get("prompt") or body.get("input")
    if isinstance(prompt, list):
        prompt = prompt[0] if prompt else None
    if not isinstance(prompt, str | int | list) or is_otherwise(body):
        return 0
    return len(request.raw)


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
