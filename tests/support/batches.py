"""Calls for simulated engines, and a clock that plays them to their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft_bench.simulated import tokens
from weft_bench.simulated.engine import Engine, Work
from weft_engine.wire import CallContext, CallReport


def work(
    name: str, prompt: int, output: int, *, begins: str = "", program: str = "", **told: Any
) -> Work:
    """A call of so many tokens. begins: what its prompt begins with, as other calls' may. told: of
    its program, as service_s."""
    text = (begins + f"<{name}>").encode().ljust(prompt * tokens.TOKEN_BYTES, b".")
    text = text[: prompt * tokens.TOKEN_BYTES] + tokens.words(output).encode()
    return Work(CallContext(name, program or name, **told), text, prompt, output)


@dataclass
class Played:
    """reports, in the order in which calls ended; got: tokens of each; ended: when."""

    reports: list[CallReport] = field(default_factory=list)
    got: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    steps: int = 0

    @property
    def order(self) -> list[str]:
        """Calls in the order in which they ended."""
        return [report.call for report in self.reports]

    def of(self, call: str) -> CallReport:
        """A call's report."""
        (report,) = [r for r in self.reports if r.call == call]
        return report


def play(engine: Engine, arrivals: Sequence[tuple[float, Work]], *, leaps: bool = True) -> Played:
    """Until all have ended. The engine's books are looked through between any two steps."""
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
