"""The interface by which batches make calls: the gateway's one path, inside the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from weft_engine.wire import CallReport

from weft_gateway.calls.call import Plan
from weft_gateway.calls.client import Disconnect
from weft_gateway.errors import ApiError
from weft_gateway.model.usage import Usage
from weft_gateway.runs.batch_results import Answer

# The service of a call before the first report, seconds.
_ASSUMED_S: Final = 1.0


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
    engine, if it sends reports. usage: the tokens that it counted.
    """

    answer: Answer
    error: ApiError | None
    report: CallReport | None = None
    usage: CallReport | Usage | None = None


class Submit(Protocol):
    """Makes a call. Raises ClientGone if `client` was ended meanwhile."""

    async def __call__(self, request: Request, client: Disconnect) -> Answered:
        """Wait for the whole answer."""
        ...


@dataclass(slots=True)
class MeanService:
    """The mean service of calls, by their reports."""

    _sum_s: float = 0.0
    _reports: int = 0

    def add(self, found: Answered) -> None:
        """Take the report of a call, if it has one."""
        if found.report is not None:
            self._reports += 1
            self._sum_s += found.report.service_s

    @property
    def seconds(self) -> float:
        """The mean; an assumed one before the first report."""
        return self._sum_s / self._reports if self._reports else _ASSUMED_S


def tokens_used(found: Answered) -> int:
    """Return the tokens of a call, 0 if its engine did not count them."""
    usage = found.usage
    return 0 if usage is None else usage.prompt_tokens + usage.output_tokens
