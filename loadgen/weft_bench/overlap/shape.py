"""Agent requests with the published shape of Sutradhara's production trace (sections 3.2, 3.3).

Pure. Sizes are relative to the median prompt and times are shares, so that one shape fits any model
and machine. `prompts` converts it to texts, `probe` to seconds.

    published                                           here
    iterations: median about 2, up to 7                 truncated geometric, 2 to 7
    fan-out of an iteration: median 2, up to 21         log-normal, rounded, 1 to 21
    prompt: median 20K tokens, tail 3 times that        log-normal, at most 3
    50 to 80% of the next prompt without tools' output  uniform
    tools' share of FTR: 32% (median), 61% (p90), 85% (p99)  logit-normal
    a tool's time over its median: 1.23 to 1.52 at p75,
      1.60 to 3.28 at p90                               log-normal
    final answer: about 5 times an iteration's tokens   log-normal, 1/2 to 2 times that

The trace also changes system prompts with the tools that were called (4.3). The paper does not
publish how often: the argument `changed` sets it. It does not publish the distribution of tools
either: 20 tools by Zipf's law.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Final

from weft_bench.workloads.streams import stream

FEWEST_TURNS: Final = 2
MOST_TURNS: Final = 7
MOST_CALLS: Final = 21
LARGEST_PROMPT: Final = 3.0
INDEPENDENT: Final = (0.5, 0.8)
TOOLS: Final = 20
FINAL_OVER_TURN: Final = 5.0
LARGEST_FINAL: Final = 2.0
# The question and its context. The system prompt is most of a prompt.
QUERY: Final = 0.15
# Number of system prompts at the start of requests. With four, an LRU cache of 12 median prompts
# finds about as much of 120 requests as the paper's baseline: 21.8% (section 5.4.3).
BEGINNINGS: Final = 4

_ONLY_TWO: Final = 0.6
_CALLS_SIGMA: Final = 0.76
_PROMPT_SIGMA: Final = 0.47
_SHARE_MEDIAN: Final = 0.32
_SHARE_SIGMA: Final = 1.0
_TOOL_SIGMA: Final = 0.55
_FINAL_SIGMA: Final = 0.35
# Names of the random streams, in order of use.
_PURPOSES: Final = (
    "depth", "fan-out", "sizes", "shares", "times", "tools", "systems", "finals",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShapeCall:
    """One tool call. tool: number, 0 to TOOLS - 1. weight: relative duration within the request."""

    tool: int
    weight: float


@dataclass(frozen=True, slots=True)
class ShapeTurn:
    """One call of the model.

    system: name of the system prompt; equal names share it. size: of the prompt, in median prompts.
    outputs: part of `size` that is the output of the previous turn's tools, 0 in the first turn.
    calls: tools that it calls, none in the last turn.
    """

    system: str
    size: float
    outputs: float
    calls: tuple[ShapeCall, ...] = ()

    @property
    def weight(self) -> float:
        """Duration of the turn's tools: they run in parallel, so the longest counts."""
        return max((call.weight for call in self.calls), default=0.0)


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """One user request.

    tool_share: the tools' share of FTR without overlap. final: length of the final answer relative
    to an iteration of two calls.
    """

    number: int
    turns: tuple[ShapeTurn, ...]
    tool_share: float
    final: float

    def tool_seconds(self, model_s: float) -> tuple[tuple[float, ...], ...]:
        """Return the seconds that each tool of each turn runs.

        model_s: the model's seconds until the final answer's first token.
        """
        whole = model_s * self.tool_share / (1 - self.tool_share)
        scale = whole / sum(turn.weight for turn in self.turns)
        return tuple(tuple(call.weight * scale for call in turn.calls) for turn in self.turns[:-1])


def generate(seed: int, count: int, changed: float = 1.0) -> list[ShapeRequest]:
    """Return `count` requests. The same seed gives the same requests.

    changed: share of turns after the first whose system prompt depends on the tools just called.
    The others keep the previous one.
    """
    return [_request(seed, number, changed) for number in range(count)]


def _request(seed: int, number: int, changed: float) -> ShapeRequest:
    depth, fan_out, sizes, shares, times, tools, systems, finals = (
        stream(seed, f"overlap/{purpose}/{number}") for purpose in _PURPOSES
    )
    size = min(LARGEST_PROMPT, sizes.lognormvariate(0, _PROMPT_SIGMA))
    system = f"beginning {_zipf(systems, BEGINNINGS)}"
    outputs, turns = 0.0, []
    for index in range(last := _depth(depth)):
        calls: tuple[ShapeCall, ...] = ()
        if index < last - 1:
            calls = tuple(
                ShapeCall(_zipf(tools, TOOLS), times.lognormvariate(0, _TOOL_SIGMA))
                for _ in range(_calls(fan_out))
            )
        turns.append(ShapeTurn(system, size, outputs, calls))
        if systems.random() < changed:
            system = "after " + " ".join(map(str, sorted({call.tool for call in calls})))
        outputs = size * (1 - sizes.uniform(*INDEPENDENT))
    return ShapeRequest(number, tuple(turns), _share(shares), _final(finals))


def _depth(rng: Random) -> int:
    turns = FEWEST_TURNS
    while turns < MOST_TURNS and rng.random() >= _ONLY_TWO:
        turns += 1
    return turns


def _calls(rng: Random) -> int:
    return min(MOST_CALLS, max(1, round(rng.lognormvariate(log(2), _CALLS_SIGMA))))


def _share(rng: Random) -> float:
    odds = _SHARE_MEDIAN / (1 - _SHARE_MEDIAN) * exp(rng.gauss(0, _SHARE_SIGMA))
    return odds / (1 + odds)


def _final(rng: Random) -> float:
    spread = rng.lognormvariate(0, _FINAL_SIGMA)
    return FINAL_OVER_TURN * min(LARGEST_FINAL, max(1 / LARGEST_FINAL, spread))


def _zipf(rng: Random, count: int) -> int:
    return rng.choices(range(count), [1 / rank for rank in range(1, count + 1)])[0]
