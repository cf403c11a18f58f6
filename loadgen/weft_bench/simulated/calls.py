"""A replica's answers, call by call, for benches that compare gateways. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from weft_engine.wire import CallReport

_KEPT: Final = 65_536


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer.

    id: as the client reads it, unique across replicas. waiting_s, service_s: real seconds.
    """

    id: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    waiting_s: float
    service_s: float


@dataclass(slots=True)
class AnsweredCalls:
    """The newest answers, oldest first."""

    _answers: deque[Answered] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def add(self, answer: str, report: CallReport) -> None:
        """Record a complete answer."""
        self._answers.append(
            Answered(
                answer,
                report.prompt_tokens,
                report.cached_tokens,
                report.output_tokens,
                report.waiting_s,
                report.service_s,
            )
        )

    def told(self) -> list[dict[str, Any]]:
        """Return all answers as JSON values."""
        return [asdict(answer) for answer in self._answers]

    def clear(self) -> None:
        """Remove all answers."""
        self._answers.clear()
