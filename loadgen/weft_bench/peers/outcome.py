"""Joins calls of the client with answers of the replicas into figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf
from typing import Final

from weft_bench.peers.drive import Call, Script
from weft_bench.peers.turns import UserTurn, durations
from weft_bench.stats import mean, percentile

# Of a turn's duration alone.
MULTIPLES: Final = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 7.0, 10.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """A call as its replica reports it: place, tokens, and real seconds.

    used_s: waiting and service in the engine.
    """

    replica: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    used_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One program.

    completion_s: arrival to last answer. alone_s: the same with a replica to itself. Both are real
    seconds with gaps. moves: calls that went to another replica than the one before, out of
    `followers` that had one before. recomputed_tokens: prompt tokens computed although a replica
    had computed them for this program. front_s: seconds of its calls outside of engines. untold:
    answered calls that no replica reports. turns: the duration of each turn with a target.
    """

    completion_s: float
    alone_s: float
    calls: int
    followers: int
    moves: int
    prompt_tokens: int
    cached_tokens: int
    recomputed_tokens: int
    output_tokens: int
    front_s: float
    untold: int
    errors: tuple[str, ...]
    long_gaps: bool
    chat: bool = False
    turns: tuple[tuple[float, UserTurn], ...] = ()

    @property
    def slowdown(self) -> float:
        """Completion time over the time alone."""
        return self.completion_s / self.alone_s


def outcomes(
    scripts: Sequence[Script],
    calls: Sequence[Call],
    answers: Mapping[str, Answer],
    block_tokens: int,
) -> list[Outcome]:
    """Return one outcome for each program, in order.

    calls: by program, in the order of sending. answers: by id. block_tokens: replicas cache full
    blocks only.
    """
    by_program = {p: list(found) for p, found in groupby(calls, key=lambda c: c.program)}
    return [
        _outcome(script, by_program.get(number, []), answers, block_tokens)
        for number, script in enumerate(scripts)
    ]


def _outcome(
    script: Script, calls: Sequence[Call], answers: Mapping[str, Answer], block_tokens: int
) -> Outcome:
    good = [call for call in calls if not call.error]
    told = [(call, answers[call.id]) for call in good if call.id in answers]
    places = [answer.replica for _, answer in told]
    times = {call.number: (call.sent_s, call.answered_s) for call in good}
    return Outcome(
        completion_s=max((c.answered_s for c in calls), default=0.0) - script.arrival_s,
        alone_s=script.alone_s,
        calls=len(good),
        followers=max(0, len(places) - 1),
        moves=migrations(places),
        prompt_tokens=sum(answer.prompt_tokens for _, answer in told),
        cached_tokens=sum(answer.cached_tokens for _, answer in told),
        recomputed_tokens=sum(
            recomputed(a.prompt_tokens, a.cached_tokens, c.known_share, block_tokens)
            for c, a in told
        ),
        output_tokens=sum(answer.output_tokens for _, answer in told),
        front_s=sum(c.answered_s - c.sent_s - a.used_s for c, a in told),
        untold=len(good) - len(told),
        errors=tuple(call.error for call in calls if call.error),
        long_gaps=script.long_gaps,
        chat=script.chat,
        turns=tuple(durations(script.turns, times)),
    )


def migrations(places: Sequence[int]) -> int:
    """Return the number of calls that went to another replica than the call before."""
    return sum(a != b for a, b in pairwise(places))


def recomputed(prompt: int, cached: int, known_share: float, block_tokens: int) -> int:
    """Return the prompt tokens that were computed again although known.

    These are the known full blocks that were not cached. A prompt's last token is always computed
    and does not count.
    """
    # Shares are of full blocks, so the product is a whole number except for rounding.
    whole = prompt // block_tokens
    reach = min(round(known_share * whole), (prompt - 1) // block_tokens) * block_tokens
    return max(0, reach - cached)


def jain(values: Sequence[float]) -> float:
    """Return Jain's index, (sum x)^2 / (n sum x^2) (Jain, Chiu and Hawe 1984).

    1 if all values are equal, 1/n if one has everything, 0 without values.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def summarise(programs: Sequence[Outcome], scale: float) -> dict[str, float]:
    """Return the figures of some programs of one play.

    Programs with an error only count as errors. scale: engine seconds per real second. Times are
    engine seconds, except `front_ms`, the front's own time of a call in real milliseconds.
    """
    good = [p for p in programs if not p.errors]
    times = [p.completion_s * scale for p in good]
    prompt, followers = sum(p.prompt_tokens for p in good), sum(p.followers for p in good)
    calls = sum(p.calls for p in good)
    recomputed_tokens = sum(p.recomputed_tokens for p in good)
    return {
        "programs": len(good),
        "calls": calls,
        "mean": mean(times),
        "p50": percentile(times, 0.50),
        "p95": percentile(times, 0.95),
        "p99": percentile(times, 0.99),
        "slowdown": mean([p.slowdown for p in good]),
        "jain": jain([p.slowdown for p in good]),
        "migrations": sum(p.moves for p in good),
        "migrated": sum(p.moves for p in good) / followers if followers else 0.0,
        "recomputed_tokens": recomputed_tokens,
        "recomputed": recomputed_tokens / prompt if prompt else 0.0,
        "hit_rate": sum(p.cached_tokens for p in good) / prompt if prompt else 0.0,
        "output_tokens": sum(p.output_tokens for p in good),
        "front_ms": 1000 * sum(p.front_s for p in good) / calls if calls else 0.0,
        "untold": sum(p.untold for p in programs),
        "errors": sum(bool(p.errors) for p in programs),
        **of_turns([turn for p in programs for turn in p.turns], scale),
    }


def of_turns(turns: Sequence[tuple[float, UserTurn]], scale: float) -> dict[str, float]:
    """Return the figures of turns with targets: attainment, durations, and the shares of turns that
    took at most some multiples of their duration alone. A turn with an error attains nothing, and
    has no duration.
    """
    if not turns:
        return {}
    times = [seconds * scale for seconds, _ in turns if seconds < inf]
    return {
        "turns": len(turns),
        "attained": mean([seconds <= turn.target_s for seconds, turn in turns]),
        "turn_mean": mean(times),
        "turn_p50": percentile(times, 0.50),
        "turn_p95": percentile(times, 0.95),
        **{
            within(multiple): mean([s <= multiple * turn.alone_s for s, turn in turns])
            for multiple in MULTIPLES
        },
    }


def within(multiple: float) -> str:
    """Return the name of the share of turns that took at most this multiple of their duration
    alone.
    """
    return f"within_{multiple:g}"
