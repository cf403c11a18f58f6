"""What an engine is told of a call: its program's past, what its prompt holds, its hints."""

from __future__ import annotations

from time import time
from typing import Any

from weft_engine.wire import CallContext

from weft_gateway.api.ledger import OpenCall
from weft_gateway.api.placing import count
from weft_gateway.api.request import Request
from weft_gateway.api.services import Services
from weft_gateway.engine.lower import ReplicaKind, program_digest, tenant_digest
from weft_gateway.engine.registry import Replica
from weft_gateway.model import Program
from weft_gateway.model.hint import OwnTag
from weft_gateway.overlap import tag_codec
from weft_gateway.policies.hints import UP_TO_MARK, WHOLE
from weft_gateway.policies.tags import end_of, wire_tags

_NOT_TAKEN = "=ignored: the replica does not run the plugin"


def context_of(
    services: Services, request: Request, call: OpenCall, replica: Replica
) -> CallContext | None:
    """The context for one replica, None for one that does not run the plugin. The call's receipt
    learns each hint's fate, and its counted prompt is kept to learn from."""
    program, hints = call.program, request.hints
    weft = replica.kind is ReplicaKind.WEFT
    tags, retain_tokens, fates = None, None, hints.fates
    if weft and request.endpoint.xargs and not _silent(services, request.body):
        counted = count(services, request)
        found = request.sections
        own = hints.tags or (_told_ahead(program) if program.attributes else ())
        tags, of_tags = wire_tags(found, counted.ends, own)
        fates += of_tags
        if hints.retain_to is not None:
            retain_tokens = end_of(hints.retain_to, found, counted.ends)
    elif hints.tags:
        fates += tuple(f"{tag.name}=ignored: prompts are not tagged here" for tag in hints.tags)
    if hints.retain_to is not None and retain_tokens is None:
        fates = tuple([fate.replace(UP_TO_MARK, WHOLE) for fate in fates])
    # Engines count a prompt once for each of its answers.
    call.counted = request.counted if request.body.get("n") in (None, 1) else None
    receipt = call.receipt
    expected_s = None
    if program.calls_closed:
        expected_s = program.service_s / program.calls_closed
    if receipt is not None:
        if fates:
            receipt.hints = _told(fates, taken=weft)
        receipt.predicted_service_s = expected_s
        if call.counted is not None and call.counted.ends:
            receipt.predicted_tokens = call.counted.tokens
    if not weft:
        return None
    service_s, path_s = program.service_s, program.critical_path_s
    if hints.priority:
        # A step up counts as half of what the program has used, which is a queue or so: sooner,
        # but never before all others for good.
        share = 2.0**-hints.priority
        service_s, path_s = service_s * share, path_s * share
    context = CallContext(
        call.call,
        program_digest(call.key),
        service_s,
        program.waiting_s,
        program.arrival_s,
        path_s,
        hints.deadline_s,
        expected_s if hints.deadline_s is not None else None,
        None,
        tags,
        hints.retain_s,
        hints.reuse_priority,
        retain_tokens,
        tenant=tenant_digest(call.key.tenant),
        weight=services.tenants.of(call.key.tenant).weight,
    )
    if receipt is not None:
        receipt.told = context
    return context


def _told_ahead(program: Program) -> tuple[OwnTag, ...]:
    """The tags that were told of the program before, through whichever gateway."""
    text = program.attribute(tag_codec.TAGS, time())
    return tag_codec.decode(text) if text else ()


def _silent(services: Services, body: dict[str, Any]) -> bool:
    """Whether nothing is to be said of what the prompt holds: by the settings, or by the client,
    with an empty list."""
    if not services.settings.tag_prompts:
        return True
    own = body.get("weft")
    return isinstance(own, dict) and own.get("tags") == []


def _told(fates: tuple[str, ...], *, taken: bool) -> tuple[tuple[str, str], ...]:
    """Names and fates. What was right, but has nobody to follow it, is ignored."""
    found = []
    for text in fates:
        name, _, fate = text.partition("=")
        if not taken and fate.startswith("applied"):
            fate = _NOT_TAKEN[1:]
        found.append((name, fate))
    return tuple(found)
