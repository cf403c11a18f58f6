"""Searches the candidates of a trace by successive halving. Pure."""

from __future__ import annotations

from math import inf
from typing import Final

from weft_gateway.tuning.replay.play import Play
from weft_gateway.tuning.replay.prepared import prepare
from weft_gateway.tuning.replay.trace import Found, Scored, Trace, Values, candidates

# Share of the counted units that have ended with the current values when the worse candidates are
# dropped, and the share of candidates that go on. Plays continue and do not begin again.
_PART: Final = 0.5
_KEPT: Final = 0.6


def search(trace: Trace) -> Found:
    """Return the best values. Raises ValueError if the trace cannot be replayed.

    All candidates are played until half of the counted units have ended with the current values.
    Those with the least mean latency until then go on, and the current values, for the comparison.
    """
    trace.check()
    prepared = prepare(trace)
    plays = [Play(prepared, values) for values in candidates(trace.current)]
    tried: dict[Values, Scored] = {}
    left = plays
    if len(plays) > 2:
        plays[0].run_until(inf, round((1 - _PART) * len(trace.counted)))
        _run(plays, plays[0].now, trace, tried, _PART)
        # The first play is that of the current values. Of equal ones, the earlier is kept.
        ranked = sorted(plays[1:], key=lambda play: play.mean_s())
        left = [plays[0], *ranked[: max(1, round(_KEPT * len(ranked)))]]
    _run(left, inf, trace, tried, 1.0)
    best = min(left, key=lambda play: tried[play.values].score)
    return Found(
        best.values,
        tried[best.values].score,
        tried[plays[0].values].score,
        list(tried.values()),
        calls=sum(play.calls for play in plays),
    )


def _run(
    plays: list[Play], until_s: float, trace: Trace, tried: dict[Values, Scored], part: float
) -> None:
    for play in plays:
        play.run_until(until_s)
        if until_s == inf and not play.done:
            raise ValueError("some counted units did not end: a call fits no replica")
        score = play.score(trace.objective)
        tried[play.values] = Scored(play.values, score, part)
