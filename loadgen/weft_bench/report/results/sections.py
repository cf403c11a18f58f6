"""Sections of the results page with small tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isnan
from typing import Any, Final

from weft_bench.report.results import fronts
from weft_bench.report.results.comparisons import (
    BETTER,
    BOUND,
    OPEN,
    SINGLE,
    TUNING,
    WORSE,
    Comparison,
    family_size,
)
from weft_bench.report.results.material import Material, seeds_as_text
from weft_bench.report.rows import markdown as table

_AGREEMENT: Final = "agreement"
# A percentile of fewer programs is nearly the slowest one.
_FOR_P99: Final = 100
_NONE: Final = "nothing yet"


def kinds(material: Material) -> str:
    """Return the table of what ran, what is modelled, and the error of each kind of figures."""
    ratios = _agreement(material, "ratio")
    error = "unknown"
    if ratios:
        error = (
            f"emulated over virtual mean: {min(ratios):.2f} to {max(ratios):.2f} "
            "([agreement](#agreement-of-virtual-and-emulated))"
        )
    by_kind = {kind: f"[peers](results/peers-{kind}.md)" for kind in material.peers}
    experiments = Counter(one.experiment.kind for one in material.results.values())
    other = {
        name: f"[{name}](results/{name}.md)"
        for name in ("tenants", "attack")
        if name in material.tables
    }
    real = [one for one in (by_kind.get("real"), other.get("tenants")) if one]
    gpu = sorted(name for name in material.others if name.startswith("gpu"))
    rows = [
        (
            "virtual (simulated)",
            "Weft's and vLLM's schedulers, KV-cache manager, router and process table",
            "the time of each step, clients, network",
            error,
            f"{experiments['simulated']} [experiments](#all-figures)",
        ),
        (
            "emulated",
            "vLLM's server with its scheduler, the gateway, the other proxies, HTTP, in real time",
            "the device: it computes no tokens and takes the time of the cost model",
            "against a GPU: unknown",
            by_kind.get("emulated", _NONE),
        ),
        (
            "real, CPU",
            "everything, with a small model",
            "nothing, but a CPU has other costs than a GPU",
            "-",
            ", ".join(real) or _NONE,
        ),
        (
            "real, GPU",
            "everything",
            "nothing",
            "-",
            ", ".join(f"`results/{name}.json`" for name in gpu) or _NONE,
        ),
    ]
    columns = ("kind", "what ran", "what is modelled", "error", "figures here")
    return table(columns, rows, len(columns))


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
    ratios = _agreement(material, "ratio")
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


def headline(material: Material) -> str:
    """Return Weft beside the best other proxy on emulated engines."""
    found = material.of_groups("emulated")
    if not found:
        return "Not measured yet."
    rows = [
        (
            group.name,
            group.engines,
            str(group.programs),
            seeds_as_text(group.seeds),
            group.best("mean"),
            f"`{group.ours}`",
            *(_beside_goal(one) for one in judged),
        )
        for group, judged in found
    ]
    figures = (f"{label}, goal {fronts.GOALS[name]:.2f}" for name, label in fronts.LABELS.items())
    columns = ("workload", "engines", "programs", "seeds", "best peer (seeds)", "Weft", *figures)
    parts = [table(columns, rows, 6), _goals(material)]
    if any(group.programs < _FOR_P99 for group, _ in found):
        parts.append(
            f"With fewer than {_FOR_P99} programs in a play, P99 is nearly the slowest one."
        )
    return "\n\n".join(parts)


def _beside_goal(one: Comparison) -> str:
    return f"{one.score.shown}, {_goal(one)}"


def _goal(one: Comparison) -> str:
    """Return whether the goal is met: by the whole interval, by the mean only, or not."""
    ratio, goal = one.score.ratio, one.goal
    if goal is None or isnan(ratio.middle):
        return "-"
    if ratio.middle > goal:
        return "missed"
    if isnan(ratio.p):
        return "one seed"
    return "met" if ratio.high <= goal else "met by the mean, not by the interval"


def _goals(material: Material) -> str:
    by = Counter(
        (one.score.name.rpartition(", ")[2], _goal(one))
        for one in material.comparisons
        if one.goal is not None
    )
    lines = []
    for name, label in fronts.LABELS.items():
        found = {goal: count for (of, goal), count in by.items() if of == label}
        shown = ", ".join(f"{count} {goal}" for goal, count in sorted(found.items()))
        lines.append(f"- **{label}, goal {fronts.GOALS[name]:.2f}:** {shown}")
    return "\n".join(lines)


def agreement(material: Material) -> str:
    """Return the comparison of virtual time and emulated engines by case."""
    document = material.tables.get(_AGREEMENT)
    if document is None:
        return "Not measured yet."
    ratios = _agreement(material, "ratio")
    taus = _agreement(material, "Kendall's tau")
    ranking = next(one for one in document["tables"] if "Kendall's tau" in one["columns"])
    lines = [f"- {finding}" for finding in document["findings"]]
    text = (
        "The same programs ran in virtual time and on emulated engines. Emulated over virtual mean "
        f"completion is {min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} pairs of scene and "
        f"order; the rank correlation of the orders (Kendall's tau) is {min(taus):.2f} to "
        f"{max(taus):.2f}. Both share the cost model, so this does not test it "
        f"([tables](results/{_AGREEMENT}.md), [method](simulator.md#fidelity))."
    )
    shown = table(ranking["columns"], ranking["rows"], ranking["labels"])
    return "\n\n".join([text, shown, "\n".join(lines)])


def _agreement(material: Material, column: str) -> list[float]:
    """Return a column of the agreement's tables; empty if it was not measured."""
    for one in material.tables.get(_AGREEMENT, {}).get("tables", ()):
        if column in one["columns"]:
            place = one["columns"].index(column)
            return [float(row[place]) for row in one["rows"] if row[place] != "-"]
    return []


def _agreed_orders(material: Material) -> set[str]:
    document = material.tables.get(_AGREEMENT, {})
    return {str(cell["order"]) for cell in document.get("cells", ()) if "order" in cell}


def unknown(material: Material, known_peers: Sequence[str]) -> str:
    """Return a list of what is not measured. known_peers: all rows that the bench has."""
    lines = []
    if not any(name.startswith("gpu") for name in material.others):
        lines.append(
            "**GPU.** No figure here is from a GPU. Step times are from data sheets, not "
            "measured. [GPU measurements](gpu.md) has the command."
        )
    emulated = [one for one in material.groups if one.kind == "emulated"]
    played = {peer for group in emulated for peer in group.peers}
    absent = [name for name in known_peers if name not in played]
    if absent:
        lines.append(f"**Other proxies.** Not measured on emulated engines: {_code(absent)}.")
    single = [one.name for one in emulated if len(one.seeds) < 2]
    if single:
        lines.append(f"**Seeds.** One seed, so no interval: {', '.join(single)}.")
    orders = sorted({group.ours.partition("/")[2] for group in emulated})
    agreed = _agreed_orders(material)
    unchecked = [name for name in orders if agreed and name not in agreed]
    if unchecked:
        lines.append(
            f"**Agreement.** It was measured without {_code(unchecked)}, the order of the headline."
        )
    other: dict[str, list[str]] = {}
    for name, result in material.results.items():
        if result.order and result.experiment.order != result.order:
            other.setdefault(result.order, []).append(name)
    for order, names in other.items():
        lines.append(
            f"**Order.** Measured with `{order}`, another order than today: {_code(names)}."
        )
    tuned = [name for name, result in material.results.items() if _tuned(result.seeds)]
    if tuned:
        lines.append(
            f"**Fresh seeds.** Measured with seeds below {TUNING.stop}, which were open to tuning, "
            f"so the forest plot does not show them: {_code(tuned)}."
        )
    if material.missing:
        lines.append(f"**Experiments.** Not measured yet: {_code(material.missing)}.")
    return "\n".join(f"- {line}" for line in lines)


def _tuned(seeds: Sequence[int]) -> bool:
    return any(seed in TUNING for seed in seeds)


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


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
