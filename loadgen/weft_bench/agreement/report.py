"""Tables and goals of `weft bench fit --agreement`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_bench.agreement.compare import Delay, Pair, Played, apart, reversals, tau
from weft_bench.stats import mean

# Goals of this project.
DILATION_GOAL: Final = 0.03
LATE_GOAL: Final = 0.01


@dataclass(frozen=True, slots=True)
class Agreement:
    """One case. pairs: of each order. goal: see `Case`."""

    delay: Delay
    pairs: Mapping[str, Pair]
    goal: float


Found = Mapping[str, Agreement]
Dilations = Mapping[int, Played]


def missed(found: Found, dilations: Dilations) -> list[str]:
    """Return the missed goals as text."""
    misses = []
    for case, agreement in found.items():
        for order, pair in agreement.pairs.items():
            name = f"{case}, {order}"
            if abs(pair.ratio - 1) > max(agreement.goal, pair.noise):
                misses.append(f"{name}: emulated over virtual is {pair.ratio:.3f}")
            misses += _late(name, pair.emulated)
        misses += [f"{case}: {pair} rank differently" for pair in reversals(agreement.pairs)]
    for what, values in _compared(dilations).items():
        if values and apart(values) > DILATION_GOAL:
            misses.append(f"dilations: {what} differs by {apart(values):.1%}")
    for dilate, played in dilations.items():
        misses += _late(f"dilation {dilate}", [played])
    return misses


def _compared(dilations: Dilations) -> dict[str, list[float]]:
    """Return the figures that must be the same at every dilation."""
    plays = dilations.values()
    return {
        "the device's busy time": [one.busy_s for one in plays],
        "the mean call": [one.call_s for one in plays],
        "the mean program": [one.program_s for one in plays],
    }


def _late(name: str, plays: Sequence[Played]) -> list[str]:
    share = _late_share(plays)
    return [f"{name}: {share:.2%} late"] if share >= LATE_GOAL else []


def _late_share(plays: Sequence[Played]) -> float:
    return sum(one.late_s for one in plays) / sum(one.busy_s for one in plays)


def tables(found: Found, dilations: Dilations) -> list[dict[str, Any]]:
    """Return the tables of orders, of cases and of dilations."""
    seeds = max(len(p.emulated) for one in found.values() for p in one.pairs.values())
    plays = max(len(p.virtual[0]) for one in found.values() for p in one.pairs.values())
    return [
        {
            "title": f"mean program completion in engine seconds over {seeds} seeds, and hit rate "
            "of the prefix cache and preemptions of a play, emulated and virtual. Each seed has "
            f"one emulated play and {plays} virtual ones with other delays of calls. The noise is "
            "half of the 95% interval of the ratio that these delays cause. The goals are a ratio "
            f"as shown or within the noise of 1, and less than {LATE_GOAL:.0%} late",
            "labels": 2,
            "columns": [
                "case", "order", "emulated", "virtual", "ratio", "goal", "noise", "hit rate",
                "virtual hit rate", "preempted", "virtual preempted", "late",
            ],
            "rows": [
                _row(case, order, pair, agreement.goal)
                for case, agreement in found.items()
                for order, pair in agreement.pairs.items()
            ],
        },
        {
            "title": "ranking of the orders by these means. A pair is reversed if both differences "
            "exceed the noise and have other signs; the goal is no such pair. The delays are the "
            "median time of a call outside of the idle engine, and that of a chat for 1,000 tokens "
            "of its prompt, engine seconds",
            "labels": 1,
            "columns": [
                "case", "Kendall's tau", "reversed pairs", "mean ratio", "delay", "per 1,000",
            ],
            "rows": [_ranking(case, agreement) for case, agreement in found.items()],
        },
        {
            "title": "one scene at several dilations: means of calls (in the engine) and programs "
            "and the device's busy time, in engine seconds. The goal is that each figure differs "
            f"by at most {DILATION_GOAL:.0%}, with less than {LATE_GOAL:.0%} late",
            "labels": 1,
            "columns": ["dilate", "mean call", "mean program", "busy", "steps", "late"],
            "rows": [
                [
                    str(dilate), f"{one.call_s:.3f}", f"{one.program_s:.3f}", f"{one.busy_s:.3f}",
                    f"{one.steps:,}", f"{one.late_share:.2%}",
                ]
                for dilate, one in dilations.items()
            ],
        },
    ]  # fmt: skip


def _row(case: str, order: str, pair: Pair, goal: float) -> list[str]:
    emulated, virtual = pair.emulated, pair.virtual_all
    return [
        case,
        order,
        f"{pair.emulated_s:.3f}",
        f"{pair.virtual_s:.3f}",
        f"{pair.ratio:.3f}",
        f"{1 - goal:.2f} to {1 + goal:.2f}",
        f"{pair.noise:.3f}",
        *(f"{mean([one.hit_rate for one in plays]):.3f}" for plays in (emulated, virtual)),
        *(f"{mean([one.preemptions for one in plays]):.1f}" for plays in (emulated, virtual)),
        f"{_late_share(emulated):.2%}",
    ]


def _ranking(case: str, agreement: Agreement) -> list[str]:
    pairs = agreement.pairs
    return [
        case,
        f"{tau(pairs):.2f}" if len(pairs) > 1 else "-",
        "; ".join(reversals(pairs)) or "none",
        f"{mean([pair.ratio for pair in pairs.values()]):.3f}",
        f"{agreement.delay.call_s:.4f}",
        f"{1000 * agreement.delay.token_s:.4f}",
    ]
