"""GET /weft/journal: the last calls without their text."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from weft_gateway.api.admin import guard
from weft_gateway.api.auth import Authenticator
from weft_gateway.config import Settings
from weft_gateway.telemetry.journal import Journal

_MOST_LINES: Final = 1000


class JournalLine(BaseModel):
    """One call that has ended. Times but `arrived_at` are in seconds since the call arrived."""

    n: int = Field(description="number of the line, one more than that of the line before")
    call: str = Field(description="its id, as in receipts")
    tenant: str | None = Field(description="digest of its API key; null without one")
    program: str = Field(description="digest of the tenant's name for its session")
    thread: str = Field(description="digest of its thread within the program")
    model: str
    endpoint: str
    replica: str
    kind: str | None = Field(
        description="digest of what its length is predicted by; null if nothing was predicted. "
        "Valid within one process"
    )
    arrived_at: float = Field(description="Unix time in seconds")
    sent_s: float | None = Field(description="when the gateway sent it to its replica")
    first_byte_s: float | None
    total_s: float
    outcome: str = Field(description="ok, error, aborted or refused")
    prompt_tokens: int | None = Field(description="null if the engine has not counted them")
    cached_tokens: int | None
    output_tokens: int | None
    service_s: float | None = Field(description="time in the engine's steps; from Weft's plugin")
    deadline_s: float | None = Field(
        description="from the begin of its program, turn or call to the target"
    )
    continues: str | None = Field(
        description="the earlier call with whose prompt it has most in common, usually of its "
        "program; null if none is known"
    )
    common_tokens: int | None = Field(
        description="tokens from the beginning that both prompts have in common, by messages"
    )
    block_tokens: int | None = Field(description="about the tokens of each block")
    blocks: list[str] = Field(
        description="cumulative hashes of the prompt's blocks of 2,048 bytes: each stands for the "
        "prompt up to the end of its block, at most 256 KiB. Empty if the placement did not read "
        "the prompt, as for later calls of a program with a home. Valid within one process"
    )


class Lines(Response):
    """JSON, one object a line."""

    media_type = "application/x-jsonl"


def router(auth: Authenticator, journal: Journal, settings: Settings) -> APIRouter:
    """Create the route."""
    api = APIRouter(
        prefix="/weft", tags=["administration"], dependencies=[Depends(guard(auth, settings))]
    )

    # In a thread, not in the loop that serves calls.
    @api.get(
        "/journal",
        summary="Get the last calls without their text",
        response_class=Lines,
        responses={200: {"model": JournalLine}},
    )
    def get_journal(
        after: Annotated[int, Query(ge=0, description="number of the last line read")] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_LINES)] = _MOST_LINES,
    ) -> Response:
        """One JSON object a line, the oldest call first, of the calls that this gateway served: the
        last 16,384, and fewer if their prompts have many blocks. A gap between the numbers of two
        answers means that lines were dropped between them. The lines have no text of prompts
        and answers, and names that clients chose are digests, except `model`."""
        lines = [orjson.dumps(call.to_json(n)) + b"\n" for n, call in journal.after(after, limit)]
        return Lines(b"".join(lines))

    return api
