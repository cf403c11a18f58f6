"""The sharp edges: where ours loses, on workloads made to find that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.experiments.cells import Cell, Estimate, Measured, cells
from weft_bench.experiments.edge_runs import OTHERS, OURS, RIVAL, measure
from weft_bench.experiments.edge_scenes import BY_NAME, EDGES, Edge
from weft_bench.experiments.experiment import SIMULATION, Experiment, Table
from weft_bench.experiments.headline import Headline, less

# Seeds of the two that each workload was made for.
_MORE: Final = 5
_SHOWN: Final = {"latency": "mean", "latency_p99": "P99"}


def _cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for edge in EDGES
        for system in (OURS, RIVAL, *(() if quick else OTHERS))
        if system != edge.rival
        for cell in cells(
            _MORE if system in {OURS, RIVAL} and not quick else 3,
            edge=edge.name,
            system=system,
            programs=edge.programs // 2 if quick else edge.programs,
        )
    ]


def _against(found: Measured, edge: Edge, system: str) -> Estimate:
    """Ours over a system, of the cells of one edge."""
    name = RIVAL if system == edge.rival else system
    ours = found.where(system=OURS)
    return ours.ratio(edge.figure, found.where(system=name))


def _tables(found: Measured) -> Sequence[Table]:
    rows = []
    for name in found.levels("edge"):
        edge, at = BY_NAME[str(name)], found.where(edge=name)
        ours = at.where(system=OURS)
        rows.append(
            (
                edge.name,
                edge.rival,
                _SHOWN[edge.figure],
                str(ours.estimate(edge.figure)),
                str(at.where(system=RIVAL).estimate(edge.figure)),
                str(_against(at, edge, edge.rival)),
                *(str(_against(at, edge, other)) for other in OTHERS),
                str(ours.estimate("hit_rate")),
                str(at.where(system=RIVAL).estimate("hit_rate")),
            )
        )
    columns = (
        "workload",
        "rival",
        "of program latency",
        "weft, s",
        "rival, s",
        "weft over rival",
        *(f"over {other}" for other in OTHERS),
        "hit rate",
        "rival's",
    )
    title = (
        "workloads made for ours to lose; above 1 it does (full form; half the programs if quick)"
    )
    return [Table(title, columns, rows, labels=3)] if rows else []


def _findings(found: Measured) -> Sequence[str]:
    said = []
    for level in found.levels("edge"):
        edge = BY_NAME[str(level)]
        name = f"{edge.name} ({edge.what})"
        ratio = _against(found.where(edge=level), edge, edge.rival)
        if ratio.above(1):
            said.append(
                f"{name}: ours takes {ratio} times as long as {edge.rival}; it was made since "
                f"{edge.why}"
            )
        elif ratio.below(1):
            said.append(
                f"{name}: ours takes {ratio} times as long as {edge.rival}, so it does not lose "
                f"there, though it was expected that {edge.why}"
            )
        else:
            said.append(
                f"{name}: no difference shown ({ratio} of {edge.rival}); what was looked for is "
                f"that {edge.why}"
            )
    return said


def _headline(found: Measured) -> Headline:
    scores = []
    for level in found.levels("edge"):
        edge = BY_NAME[str(level)]
        ratio = _against(found.where(edge=level), edge, edge.rival)
        scores.append(less(f"{edge.name} ({edge.rival})", ratio))
    return Headline("latency over the rival's that each was made for; less is better", scores)


EXPERIMENT: Final = Experiment(
    name="edges",
    title="Sharp edges: where ours loses",
    source="workloads made for this",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    findings=_findings,
    code=(*SIMULATION, "loadgen/weft_bench/experiments/edge_scenes.py"),
    headline=_headline,
)
