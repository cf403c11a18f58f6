"""Attainment of the targets of turns beside other proxies: tables and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from weft_bench.report.peers import ALL, OURS, Turn, faultless, measured, over_best
from weft_bench.report.tables import Shown, Table, each, mean, percent, table
from weft_bench.studies.cells import Estimate, Measured, geometric

# Weft with an SLO file, the balancer `soonest` and the order for deadlines.
SLACK: Final = "weft/slack"
# A goal of this project: attainment over that of the best peer.
GOAL: Final = 1.3
_FIGURES: Final[Mapping[str, str]] = {
    "attained": "attainment of turns", "turn_mean": "mean of turns", "turn_p95": "P95 of turns",
}  # fmt: skip
_MULTIPLES: Final = ("1.5", "2", "3", "4", "5")
_BEST: Final = "best peer of each seed"


def given(turns: Sequence[Turn]) -> bool:
    """Return whether turns have targets in one of these plays."""
    return any("attained" in turn.slices[ALL] for turn in turns)


def title(turns: Sequence[Turn]) -> str:
    """Return the title of these plays."""
    names = ", ".join(dict.fromkeys(turn.workload for turn in turns))
    return f"Targets of turns: {names}"


def tables(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return, for each workload, a table of the turns and one of the ratios of `SLACK` to the other
    fronts.
    """
    columns: dict[str, Shown] = {
        "attained, %": percent("attained"),
        "mean, s": mean("turn_mean"),
        "p50, s": mean("turn_p50"),
        "p95, s": mean("turn_p95"),
        **{f"within {m} x alone, %": percent(f"within_{m}") for m in _MULTIPLES},
        "late, %": percent("late"),
    }
    found = []
    for at in each(measured(turns).where(slice=ALL), "workload"):
        workload = at.only("workload")
        seeds = ", ".join(str(seed) for seed in sorted({cell.seed for cell in at.values}))
        counts = "/".join(
            str(int(count)) for count in dict.fromkeys(v["turns"] for v in at.values.values())
        )
        about = f"{workload}, {counts} turns, seeds {seeds}"
        found.append(table(at, about, ("front",), columns))
        rows = [
            (rival, *(str(_ratio(at, names, figure)) for figure in _FIGURES))
            for rival, names in _rivals(at).items()
        ]
        about = f"{workload}, {SLACK} over the others, on the same turns"
        found.append(Table(about, ("over", *_FIGURES.values()), rows, labels=1))
    return [asdict(one) for one in found]


def findings(turns: Sequence[Turn]) -> list[str]:
    """Return whether the goal is met for each workload, and every figure in which `SLACK` is worse
    than the best peer. Without peers, the other orders are the rivals, and there is no goal.
    """
    found = []
    for at in each(measured(turns).where(slice=ALL), "workload"):
        workload = at.only("workload")
        rivals = _rivals(at)
        peers = rivals.get(_BEST)
        names, whose = (peers, "best peer") if peers else (list(rivals), "best other order")
        if not names or not faultless(at).where(front=SLACK):
            continue
        if peers:
            attained = _ratio(at, names, "attained")
            verdict = "" if attained.middle >= GOAL else "missed: "
            found.append(
                f"{verdict}{workload}: attainment of turns is {attained} of the best peer's, "
                f"goal {GOAL:g}"
            )
        for figure, label in _FIGURES.items():
            ratio = _ratio(at, names, figure)
            if (ratio.middle < 1) if figure == "attained" else (ratio.middle > 1):
                found.append(f"loss: {workload}: {label} is {ratio} of the {whose}'s")
    return found


def _rivals(at: Measured) -> dict[str, list[str]]:
    """Return the fronts that each row compares `SLACK` with."""
    others = [str(name) for name in at.levels("front") if name != SLACK]
    peers = [name for name in others if not name.startswith(OURS)]
    return {name: [name] for name in others} | ({_BEST: peers} if peers else {})


def _ratio(at: Measured, names: Sequence[str], figure: str) -> Estimate:
    """Return the ratio of `SLACK` to the best of these fronts of each seed. More attainment is
    better, less of any other figure.
    """
    good = faultless(at)
    ours = good.where(front=SLACK)
    return geometric(over_best(ours, good, names, figure, most=figure == "attained"))
