"""Signatures: which executions have the same answer, so that one of them is enough.

Helium 4 caches the answers of deterministic operators by their type and inputs. Here the inputs are
the rendered request, so that equal prompts are found across operators and rows. Sampled calls
have no signature, unless they have a seed: merging them would change the distribution of the
answers, for example of a vote.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft_gateway.workflows.graph import Llm, digest
from weft_gateway.workflows.requests import (
    HttpRequest,
    LlmRequest,
    PythonRequest,
    Request,
    SqlRequest,
)


@dataclass(frozen=True, slots=True)
class CacheScope:
    """All that the answer to a prompt depends on, except for the prompt. tenant: answers are never
    shared between tenants. revision: of the model's weights. template: digest of the chat template.
    """

    tenant: str
    revision: str = ""
    template: str = ""


def signature(request: Request, idempotent: bool = False, writes: int = 0) -> str | None:
    """Return a digest of a request, in hex, or None if each execution counts. Two requests of a run
    with the same signature have the same answer.

    idempotent: of the operator. writes: number of writes on the request's SQL connection that
    have ended; a read before a write has another signature than one after it.
    """
    match request:
        case LlmRequest():
            return digest(request) if _greedy(request) else None
        case SqlRequest():
            return None if request.write else digest([request, writes])
        case PythonRequest() | HttpRequest():
            return digest(request) if idempotent else None
    return None


def cache_key(request: Request, scope: CacheScope) -> str | None:
    """Return the key of a greedy or seeded call in the prompt cache, which outlives a run. None for
    all other requests: tools read data that change between runs.
    """
    if isinstance(request, LlmRequest) and _greedy(request):
        return digest([scope, request])
    return None


def _greedy(request: LlmRequest) -> bool:
    return Llm((), request.model, request.parameters).greedy
