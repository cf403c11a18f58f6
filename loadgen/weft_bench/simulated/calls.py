"""What a replica has answered, call by call, for benches that compare gateways. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from weft_engine.wire import CallReport

_KEPT: Final = 65_536


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer. id: as the client reads it, of no other answer of any replica. waiting_s,
    service_s: in our seconds; tokens as in its report."""

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
        """The answer of this id is complete."""
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
        """All of them, as JSON has them."""
        return [asdict(answer) for answer in self._answers]

    def clear(self) -> None:
        """Forget them."""
        self._answers.clear()
