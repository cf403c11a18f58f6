"""Short texts of the results page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft_bench.report.results import fronts
from weft_bench.report.results.comparisons import (
    BETTER,
    BOUND,
    OPEN,
    SINGLE,
    WORSE,
    Comparison,
    family_size,
)
from weft_bench.report.results.material import Material
from weft_bench.report.results.trust import agreement_column


def short(material: Material) -> str:
    """Return the gain, its conditions, the losses and the trust in a few lines."""
    headlines = [one for one in material.comparisons if one.goal is not None]
    means = [one for one in headlines if one.score.name.endswith(fronts.LABELS["mean"])]
    gains = "; ".join(f"{one.score.name} {one.score.shown}, {one.verdict}" for one in means)
    fields = [one for one in material.of("memory") if one.known]
    below, above = (
        sum(one.score.outcome == outcome for one in fields) for outcome in ("won", "lost")
    )
    losses = [one for one in material.comparisons if one.verdict == WORSE and one.counts]
    lost = "; ".join(f"{one.score.name} {one.score.shown}" for one in losses)
    ratios = agreement_column(material, "ratio")
    apart = max((abs(ratio - 1) for ratio in ratios), default=0.0)
    agreed = f"Virtual and emulated means agree to {apart:.0%}. " if ratios else ""
    has_gpu = any(name.startswith("gpu") for name in material.others)
    lines = [
        f"**Gain** over the best other proxy on emulated engines: {gains or 'not measured'}.",
        f"**When:** over load and cache size, the interval of {below} of {len(fields)} comparisons "
        f"with the best other order is below 1 and of {above} above 1.",
        f"**Losses** after the correction: {lost or 'none'}. [All losses](#losses).",
        f"**Trust:** {agreed}{'' if has_gpu else 'No figure is from a GPU. '}[Unknown](#unknown).",
        f"{counts(material)} [How to read](#how-to-read) explains the verdicts.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def counts(material: Material) -> str:
    """Return the number of comparisons by verdict in a sentence."""
    by = Counter(one.verdict for one in material.comparisons if one.counts and one.known)
    text = (
        f"Weft and its rivals in {by.total() - by[SINGLE]} comparisons: {by[BETTER]} better, "
        f"{by[WORSE]} worse, {by[OPEN]} no difference shown, {by[BOUND]} bounds that are not "
        "counted as values."
    )
    return text + (f" {by[SINGLE]} more have one seed and no verdict." if by[SINGLE] else "")


def correction(material: Material) -> str:
    """Return how verdicts follow from p-values."""
    return (
        f"The family of Holm's correction has {family_size(material.comparisons)} members: all "
        "values on this page and the pages behind it that compare two systems on the same "
        "programs, losses and claims included."
    )


def verdicts(found: Sequence[Comparison]) -> str:
    """Return the comparisons of one page, by verdict."""
    lines = []
    for verdict in (BETTER, WORSE, OPEN, BOUND, SINGLE):
        shown = "; ".join(
            f"{one.score.name} {one.score.shown}"
            for one in found
            if one.verdict == verdict and one.known and not one.claim
        )
        if shown:
            lines.append(f"- **{verdict}:** {shown}")
    return "\n".join(lines)


def index_row(
    title: str, name: str, anchors: Sequence[str], rest: Sequence[Any]
) -> tuple[str, ...]:
    """Return a row of the index, with the anchors that earlier versions of the page had."""
    marks = "".join(f'<a id="{one}"></a>' for one in anchors)
    return (f"{marks}[{title}](results/{name}.md)", *map(str, rest))
