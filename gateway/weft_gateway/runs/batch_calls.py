"""The interface by which batches make calls: the gateway's one path, inside the process."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from weft_engine.wire import CallReport

from weft_gateway.calls.call import Plan
from weft_gateway.calls.client import Disconnect
from weft_gateway.errors import ApiError
from weft_gateway.runs.batch_results import Answer


class Request(NamedTuple):
    """A call to make for a tenant. path: of the endpoint. program, thread: its identity."""

    tenant: str
    path: str
    program: str
    thread: str
    body: bytes
    plan: Plan


class Answered(NamedTuple):
    """The result of a call. error: of the gateway, None if an engine has answered. report: of the
    engine, if it sends reports.
    """

    answer: Answer
    error: ApiError | None
    report: CallReport | None = None


class Submit(Protocol):
    """Makes a call. Raises ClientGone if `client` was ended meanwhile."""

    async def __call__(self, request: Request, client: Disconnect) -> Answered:
        """Wait for the whole answer."""
        ...


def tokens_of(found: Answered) -> int:
    """Return the tokens of a call, 0 if its engine sends no reports."""
    return 0 if found.report is None else found.report.prompt_tokens + found.report.output_tokens
