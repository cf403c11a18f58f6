"""The kinds of figures, how virtual and emulated agree, and the gaps of the measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from weft_bench.report.results.comparisons import TUNING
from weft_bench.report.results.material import Material
from weft_bench.report.rows import markdown as table

_AGREEMENT: Final = "agreement"
_NONE: Final = "nothing yet"
# Share of the engines' work by which a play may be late.
_LATE: Final = 0.01


def kinds(material: Material) -> str:
    """Return the table of what ran, what is modelled, and the error of each kind of figures."""
    ratios = agreement_column(material, "ratio")
    error = "unknown"
    if ratios:
        error = (
            f"emulated over virtual mean: {min(ratios):.2f} to {max(ratios):.2f} "
            "([agreement](#agreement-of-virtual-and-emulated))"
        )
    pages = {kind: [f"[peers](results/peers-{kind}.md)"] for kind in material.peers}
    for name, document in material.tables.items():
        kind = str(document["kind"]).partition(",")[0]
        pages.setdefault(kind, []).append(f"[{name}](results/{name}.md)")
    experiments = Counter(one.experiment.kind for one in material.results.values())
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
            ", ".join(pages.get("emulated", ())) or _NONE,
        ),
        (
            "real, CPU",
            "everything, with a small model",
            "nothing, but a CPU has other costs than a GPU",
            "-",
            ", ".join(pages.get("real", ())) or _NONE,
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


def agreement(material: Material) -> str:
    """Return the comparison of virtual time and emulated engines by case."""
    document = material.tables.get(_AGREEMENT)
    if document is None:
        return "Not measured yet."
    ratios = agreement_column(material, "ratio")
    taus = agreement_column(material, "Kendall's tau")
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


def agreement_column(material: Material, column: str) -> list[float]:
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
    plays = [values for group in emulated for values in group.found.values.values()]
    late = sum(values.get("late", 0.0) > _LATE for values in plays)
    if late:
        lines.append(
            f"**Pace.** In {late} of {len(plays)} emulated plays, the machine and not the cost "
            f"model set more than {_LATE:.0%} of the engines' time."
        )
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
