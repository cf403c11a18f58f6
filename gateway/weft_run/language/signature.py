"""Signatures: which executions have the same answer, so that one of them is enough.

Helium 4 caches the answers of deterministic operators by their type and inputs. Here the inputs are
the rendered request, so that equal prompts are found across operators and rows. Sampled calls
have no signature, unless they have a seed: merging them would change the distribution of the
answers, for example of a vote.
"""

from __future__ import annotations

from weft_run.language.graph import Llm, digest
from weft_run.language.requests import (
    HttpRequest,
    LlmRequest,
    PythonRequest,
    Request,
    SqlRequest,
)


def signature(request: Request, idempotent: bool = False) -> str | None:
    """Return a digest of a request, in hex, or None if each execution counts. Two requests of a run
    with the same signature have the same answer, as long as no write comes between two reads of a
    database. idempotent: of the operator.
    """
    match request:
        case LlmRequest():
            return digest(request) if _repeatable(request) else None
        case SqlRequest():
            return None if request.write else digest(request)
        case PythonRequest() | HttpRequest():
            return digest(request) if idempotent else None
    return None


def _repeatable(request: LlmRequest) -> bool:
    return Llm((), request.model, request.parameters).repeatable
