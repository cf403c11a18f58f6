"""Agentix's claims beside the same comparisons on this project's implementation of its orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Final

from weft_bench.report.results.comparisons import BETTER, OPEN, WORSE
from weft_bench.report.results.material import Material
from weft_bench.report.rows import markdown as table
from weft_bench.studies.cells import Measured
from weft_bench.studies.experiment import Claim
from weft_bench.studies.show import each

_ORDER: Final = "plas"
_REACHED: Final = ("reached", "within the interval", "not reached", "unknown, a bound")


def section(material: Material) -> str:
    """Return the table of claims, the counts, and figures that explain the differences."""
    found = [
        claim for one in material.results.values() for claim in one.experiment.claims(one.measured)
    ]
    rivals = list(dict.fromkeys(claim.rival for claim in found))
    subjects: dict[str, list[Claim]] = {}
    for claim in found:
        subjects.setdefault(claim.subject, []).append(claim)
    rows = [_row(subject, rivals, claims) for subject, claims in subjects.items()]
    columns = ("Agentix's order here", *(f"over {rival}" for rival in rivals), "hit rates")
    shown = table(columns, rows, len(columns))
    return "\n\n".join([_counts(material, found), shown, *_why(material)])


def _row(subject: str, rivals: Sequence[str], claims: Sequence[Claim]) -> tuple[str, ...]:
    by_rival = {claim.rival: claim for claim in claims}
    rates = {name: rate for claim in claims for name, rate in claim.hit_rates.items()}
    return (
        subject,
        *(_cell(by_rival[rival]) if rival in by_rival else "-" for rival in rivals),
        ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items()),
    )


def _cell(claim: Claim) -> str:
    told = f"{claim.ratio.shown}; published {claim.published}"
    return f"{told}: {reached(claim)}" if reached(claim) else told


def reached(claim: Claim) -> str:
    """Return whether the figure reaches the published one; empty without a published number.

    A bound reaches it only if the bound itself does.
    """
    ratio, less, bound = claim.ratio.ratio, claim.ratio.less, claim.ratio.bound
    if isnan(claim.target) or isnan(ratio.middle) or bound == "?":
        return ""
    passed = ratio.middle <= claim.target if less else ratio.middle >= claim.target
    if bound:
        # The true ratio may be anywhere on this side of the bound.
        beyond = (bound == "≤") is less
        return (
            "reached"
            if beyond and passed
            else "unknown, a bound"
            if beyond or passed
            else "not reached"
        )
    if passed:
        return "reached"
    within = ratio.low <= claim.target if less else ratio.high >= claim.target
    return "within the interval" if within else "not reached"


def _counts(material: Material, found: Sequence[Claim]) -> str:
    by = Counter(reached(claim) for claim in found)
    verdicts = Counter(one.verdict for one in material.comparisons if one.claim)
    counted = ", ".join(f"{by[name]} {name}" for name in _REACHED if by[name])
    return (
        f"Of {sum(by[name] for name in _REACHED)} claims with a number: {counted}. After the "
        f"correction, {verdicts[BETTER]} of these comparisons are better than the rival, "
        f"{verdicts[WORSE]} worse, and {verdicts[OPEN]} show no difference."
    )


def _why(material: Material) -> list[str]:
    """Return the gain of the order in each world of the experiment `why`."""
    if "why" not in material.results:
        return []
    found = material.results["why"].measured
    lines = [
        f"Latency of `{_ORDER}` over that of `fcfs`, by what the engine can cache "
        "([why](results/why.md)). With an endless cache, only scheduling can gain:\n"
    ]
    for world, at in each(found, "world"):
        lines.append(f"- {world}: {'; '.join(_gains(at))}")
    return ["\n".join(lines)]


def _gains(found: Measured) -> Iterator[str]:
    for workload, at in each(found, "workload"):
        ratio = at.where(order=_ORDER).ratio("latency", at.where(order="fcfs"))
        yield f"{workload} {ratio}"
