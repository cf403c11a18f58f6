"""The sharp edges: where ours loses, on workloads made to find that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Estimate, Measured, cells
from weft_bench.studies.edge_runs import OTHERS, OURS, RIVAL, measure
from weft_bench.studies.edge_scenes import BY_NAME, EDGES
from weft_bench.studies.experiment import SIMULATION, Experiment, Table
from weft_bench.studies.headline import Headline, less
from weft_bench.studies.show import Shown, each, table

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


def _ratio(found: Measured, system: str = "") -> Estimate:
    """Ours over a system, in the figure in which ours is expected to lose; "" for the rival."""
    edge = BY_NAME[str(found.only("edge"))]
    name = RIVAL if system in ("", edge.rival) else system
    return found.where(system=OURS).ratio(edge.figure, found.where(system=name))


def _against(system: str) -> Shown:
    return lambda one, group: _ratio(one, system)


def _of(system: str, figure: str = "") -> Shown:
    """A figure of a system; "" for the figure in which ours is expected to lose."""

    def shown(one: Measured, group: Measured) -> Estimate:
        name = figure or BY_NAME[str(one.only("edge"))].figure
        return one.where(system=system).estimate(name)

    return shown


def _tables(found: Measured) -> Sequence[Table]:
    columns: dict[str, Shown] = {
        "rival": lambda one, group: BY_NAME[str(one.only("edge"))].rival,
        "of program latency": lambda one, group: _SHOWN[BY_NAME[str(one.only("edge"))].figure],
        "weft, s": _of(OURS),
        "rival, s": _of(RIVAL),
        "weft over rival": _against(""),
        **{f"over {other}": _against(other) for other in OTHERS},
        "hit rate": _of(OURS, "hit_rate"),
        "rival's": _of(RIVAL, "hit_rate"),
    }
    title = (
        "workloads made for ours to lose; above 1 it does (full form; half the programs if quick)"
    )
    return [table(found, title, {"workload": "edge"}, columns)]


def _headline(found: Measured) -> Headline:
    scores = []
    for name, at in each(found, "edge"):
        scores.append(less(f"{name} ({BY_NAME[name].rival})", _ratio(at)))
    return Headline("latency over the rival's that each was made for; less is better", scores)


EXPERIMENT: Final = Experiment(
    name="edges",
    title="Sharp edges: where ours loses",
    source="workloads made for this",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=tuple(
        f"{edge.name} ({edge.what}): expected to be lost, since {edge.why}" for edge in EDGES
    ),
    code=(*SIMULATION, "loadgen/weft_bench/studies/edge_scenes.py"),
    headline=_headline,
)
