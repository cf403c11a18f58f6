"""Figures of a closed loop from its calls and sessions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft_bench.stats import mean, percentile
from weft_bench.studies.cells import Values


@dataclass(frozen=True, slots=True)
class Call:
    """An answered call. Instants are engine seconds from the start of the play.

    session: its name; "" for a chat beside the sessions. held_s: its wait for KV memory in the
    engine, 0 if unknown.
    """

    session: str
    sent_s: float
    first_token_s: float
    ended_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    held_s: float = 0.0

    @property
    def ttft_s(self) -> float:
        """Seconds from sending to the first token."""
        return self.first_token_s - self.sent_s

    @property
    def token_s(self) -> float:
        """Seconds from sending to the last token over the tokens of the answer."""
        return (self.ended_s - self.sent_s) / self.output_tokens


def figures(
    calls: Sequence[Call],
    sessions: Mapping[str, tuple[float, float]],
    counted: Sequence[str],
    until_s: float,
) -> Values:
    """Return the figures of a play.

    sessions: begin and end of each session that ended. counted: those whose completion counts;
    rates count everything that ended until `until_s`, when the last of them did.

    mean, p50, p95: completion of a session, seconds. ttft_...: of the counted sessions' calls.
    hit_rate: cached share of prompt tokens. interactivity: answer tokens of a call over its time
    from sending to the last token, the median; slow_tail: 1 over the P90 of the inverse.
    held_p95: of waits for KV memory.
    """
    times = [sessions[name][1] - sessions[name][0] for name in counted]
    mine = [one for one in calls if one.session]
    chats = [one.ttft_s for one in calls if not one.session]
    known = set(counted)
    ttft = [one.ttft_s for one in mine if one.session in known]
    pace = [one.token_s for one in mine if one.session in known]
    found = {
        "mean": mean(times),
        "p50": percentile(times, 0.50),
        "p95": percentile(times, 0.95),
        "calls_per_s": len(mine) / until_s,
        "output_per_s": sum(one.output_tokens for one in mine) / until_s,
        "ttft_mean": mean(ttft),
        "ttft_p50": percentile(ttft, 0.50),
        "ttft_p95": percentile(ttft, 0.95),
        "hit_rate": sum(c.cached_tokens for c in mine) / sum(c.prompt_tokens for c in mine),
        "interactivity": 1 / percentile(pace, 0.50),
        "slow_tail": 1 / percentile(pace, 0.90),
        "held_p95": percentile([one.held_s for one in mine], 0.95),
        "duration_s": until_s,
        "calls": len(mine),
    }
    if chats:
        found |= {
            "chat_ttft_p50": percentile(chats, 0.50),
            "chat_ttft_p95": percentile(chats, 0.95),
        }
    return found
