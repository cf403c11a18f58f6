"""Calls for simulated engines, and a clock that runs them to their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft_bench.simulated import tokens
from weft_bench.simulated.engine import Engine, Work
from weft_engine.wire import CallContext, CallReport


def work(
    name: str, prompt: int, output: int, *, begins: str = "", program: str = "", **context: Any
) -> Work:
    """Return a call with `prompt` and `output` tokens.

    begins: a prompt prefix that other calls may share. context: more fields of the CallContext,
    such as service_s.
    """
    text = (begins + f"<{name}>").encode().ljust(prompt * tokens.TOKEN_BYTES, b".")
    text = text[: prompt * tokens.TOKEN_BYTES] + tokens.words(output).encode()
    return Work(CallContext(name, program or name, **context), text, prompt, output)


@dataclass
class Played:
    """Result of a run. reports: in the order of the calls' ends. got: tokens of each call. ended:
    the time of each call's end."""

    reports: list[CallReport] = field(default_factory=list)
    got: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    steps: int = 0

    @property
    def order(self) -> list[str]:
        """Calls in the order of their ends."""
        return [report.call for report in self.reports]

    def of(self, call: str) -> CallReport:
        """Return a call's report."""
        (report,) = [r for r in self.reports if r.call == call]
        return report


def play(engine: Engine, arrivals: Sequence[tuple[float, Work]], *, leaps: bool = True) -> Played:
    """Run until all calls have ended. Check the engine's consistency between any two steps."""
    played = Played()
    coming = sorted(arrivals, key=lambda arrival: arrival[0])
    now = 0.0
    while True:
        while coming and coming[0][0] <= now:
            engine.add(coming.pop(0)[1], now)
        assert engine.violations() == []
        ends = engine.start(now, (coming[0][0] if coming else now + 1e9) if leaps else now)
        if ends is None:
            if not coming:
                return played
            now = coming[0][0]
            continue
        while coming and coming[0][0] < ends:
            at, one = coming.pop(0)
            engine.add(one, at)
        assert ends > now
        now = ends
        happened = engine.finish(now)
        played.steps += 1
        for call, count in happened.tokens.items():
            played.got[call] = played.got.get(call, 0) + count
        for report in happened.reports:
            played.reports.append(report)
            played.ended[report.call] = now
