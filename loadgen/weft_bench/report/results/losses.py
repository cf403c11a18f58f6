"""Comparisons that Weft loses, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft_bench.report.results.comparisons import BOUND, WORSE, Comparison, suspected
from weft_bench.report.results.material import Material
from weft_bench.studies.experiment import Score


def section(material: Material) -> str:
    """Return all lost comparisons, and the losses and missed goals of other commands."""
    groups: list[tuple[str, Callable[[Comparison], bool]]] = [
        ("Worse after the correction:", lambda one: one.verdict == WORSE),
        (
            "Worse by their own 95% interval, but not after the correction for the number of "
            "comparisons. More seeds may confirm them:",
            suspected,
        ),
        ("Worse by a bound, which is not a value:", _bounded),
    ]
    parts = []
    for heading, chosen in groups:
        lines = list(_lines(material, chosen))
        if lines:
            parts.append("\n".join([f"{heading}\n", *lines]))
    titles = {name: document["title"] for name, document in material.tables.items()}
    findings = {name: document["findings"] for name, document in material.tables.items()}
    for name, result in material.results.items():
        titles[name] = result.experiment.title
        findings[name] = [str(goal) for goal in result.experiment.goals(result.measured)]
    marks = {
        "loss: ": "Worse by the mean of few plays:",
        "missed: ": "Missed goals:",
    }
    for mark, heading in marks.items():
        lines = [
            f"- [{titles[name]}](results/{name}.md): {finding.removeprefix(mark)}"
            for name, found in findings.items()
            for finding in found
            if finding.startswith(mark)
        ]
        if lines:
            parts.append("\n".join([f"{heading}\n", *lines]))
    return "\n\n".join(parts) or "None."


def _bounded(one: Comparison) -> bool:
    return one.verdict == BOUND and one.score.outcome == "lost"


def _lines(material: Material, chosen: Callable[[Comparison], bool]) -> Iterator[str]:
    """Yield one line for each group of comparisons."""
    found: dict[tuple[str, str, str], list[Comparison]] = {}
    for one in material.comparisons:
        if not one.claim and one.known and chosen(one):
            found.setdefault((one.source, one.title, one.what), []).append(one)
    for (source, title, what), lost in found.items():
        opponent = "" if lost[0].rival else "; the opponent cannot be built"
        figures = "; ".join(f"**{one.score.name}** {_worse(one.score)}" for one in lost)
        yield f"- [{title}](results/{source}.md), {lost[0].kind}: {what}{opponent}. {figures}"


def _worse(score: Score) -> str:
    """Return the difference in words and as a figure."""
    away = abs(score.ratio.middle - 1)
    word = "more" if score.ratio.middle > 1 else "less"
    return f"{away:.0%} {word}: {score.shown}"
