"""The calls of batches: what the path of calls takes and returns, and when one is repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

from weft_engine.wire import CallReport
from weft_run.io.retry import model_is_away

from weft_gateway.calls.call import Plan
from weft_gateway.calls.client import Disconnect
from weft_gateway.errors import ApiError
from weft_gateway.model.usage import Usage
from weft_gateway.runs.batch_results import Answer

# Attempts of a request that may itself cause the failure.
_ATTEMPTS: Final = 4
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
# Errors of the gateway that have other causes than the request.
_NOT_ITS_FAULT: Final = frozenset(
    {"no_replica", "replica_unreachable", "rate_limit_exceeded", "table_unavailable",
     "shutting_down"}
)  # fmt: skip
_TRY_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})


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


# Makes a call and waits for the whole answer. Raises ClientGone if the client was ended meanwhile.
Submit = Callable[[Request, Disconnect], Awaitable[Answered]]


@dataclass(slots=True)
class Repeats:
    """The requests of one model that must be sent again. paused_s: no request is sent before this
    time on the monotonic clock.
    """

    paused_s: float = 0.0
    _attempts: dict[int, int] = field(default_factory=dict)
    _again: list[tuple[float, int]] = field(default_factory=list)

    @property
    def waiting(self) -> bool:
        """Whether a request waits for its repetition."""
        return bool(self._again)

    def due(self, now_s: float) -> int | None:
        """Return a request whose time has come."""
        if self._again and self._again[0][0] <= now_s:
            return heappop(self._again)[1]
        return None

    def add(self, request: int, at_s: float) -> None:
        """Send a request at a later time, monotonic clock."""
        heappush(self._again, (at_s, request))

    def forget(self, request: int) -> None:
        """A request has ended."""
        self._attempts.pop(request, None)

    def repeat(self, request: int, found: Answered, now_s: float) -> bool:
        """Plan the repetition of a failed request. False if it has ended. A request that may itself
        cause the failure has few attempts; other failures do not count.
        """
        answer, error = found.answer, found.error
        away = model_is_away(answer.status, answer.body)
        if answer.status not in _TRY_AGAIN and not away:
            return False
        if error is not None and error.code == "budget_exhausted":
            return False
        if away or (error is not None and error.code in _NOT_ITS_FAULT):
            after = b"" if error is None else dict(error.headers).get(b"retry-after", b"")
            pause_s = float(after) if after.isdigit() else _FIRST_PAUSE_S
            self.paused_s = max(self.paused_s, now_s + min(pause_s, _LONGEST_PAUSE_S))
            self.add(request, self.paused_s)
            return True
        attempts = self._attempts[request] = self._attempts.get(request, 0) + 1
        if attempts >= _ATTEMPTS:
            return False
        self.add(request, now_s + _FIRST_PAUSE_S * 2 ** (attempts - 1))
        return True
