"""The sharp edges: where ours loses, on workloads made to find that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loadgen.experiments.cells import Cell, Estimate, Measured, Values, cells
from loadgen.experiments.edge_scenes import BY_NAME, EDGES, Edge
from loadgen.experiments.experiment import SIMULATION, Experiment, Table
from loadgen.experiments.simulating import SYSTEMS, System, figures, play_programs

_OURS: Final = "weft"
_RIVAL: Final = "rival"
# Played everywhere, so that no rival is chosen for its luck.
_OTHERS: Final = {
    "vllm-opt": SYSTEMS["vllm-opt"],
    "mlfq": SYSTEMS["mlfq"],
    "program_fifo": System("program_fifo"),
}
# Seeds of the two that each workload was made for.
_MORE: Final = 5
_SHOWN: Final = {"latency": "mean", "latency_p99": "P99"}


def _cells(quick: bool) -> Sequence[Cell]:
    return [
        cell
        for edge in EDGES
        for system in (_OURS, _RIVAL, *(() if quick else _OTHERS))
        if system != edge.rival
        for cell in cells(
            _MORE if system in {_OURS, _RIVAL} and not quick else 3,
            edge=edge.name,
            system=system,
            programs=edge.programs // 2 if quick else edge.programs,
        )
    ]


def _measure(cell: Cell) -> Values:
    from loadgen.fit import fit
    from loadgen.sim.shapes import shapes
    from loadgen.sim.workload import BYTES_PER_TOKEN

    edge = BY_NAME[cell.text("edge")]
    name = cell.text("system")
    system = edge.system if name == _RIVAL else {**_OTHERS, _OURS: SYSTEMS[_OURS]}[name]
    engines = shapes("8b-a100", edge.replicas, edge.slots, edge.kv_blocks)
    made, arrivals = edge.play(cell.seed, int(cell.number("programs")))
    ready = [fit(program, engines[0].context, BYTES_PER_TOKEN) for program in made]
    programs = [program for program in ready if program is not None]
    return figures(play_programs(programs, arrivals, engines, system, cell.seed))


def _against(found: Measured, edge: Edge, system: str) -> Estimate:
    """Ours over a system, of the cells of one edge."""
    name = _RIVAL if system == edge.rival else system
    ours = found.where(system=_OURS)
    return ours.ratio(edge.figure, found.where(system=name))


def _tables(found: Measured) -> Sequence[Table]:
    rows = []
    for name in found.levels("edge"):
        edge, at = BY_NAME[str(name)], found.where(edge=name)
        ours = at.where(system=_OURS)
        rows.append(
            (
                edge.name,
                edge.rival,
                _SHOWN[edge.figure],
                str(ours.estimate(edge.figure)),
                str(at.where(system=_RIVAL).estimate(edge.figure)),
                str(_against(at, edge, edge.rival)),
                *(str(_against(at, edge, other)) for other in _OTHERS),
                str(ours.estimate("hit_rate")),
                str(at.where(system=_RIVAL).estimate("hit_rate")),
            )
        )
    columns = (
        "workload",
        "rival",
        "of program latency",
        "weft, s",
        "rival, s",
        "weft over rival",
        *(f"over {other}" for other in _OTHERS),
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
        if ratio.mean - ratio.half_width > 1:
            said.append(
                f"{name}: ours takes {ratio} times as long as {edge.rival}; it was made since "
                f"{edge.why}"
            )
        elif ratio.mean + ratio.half_width < 1:
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


EXPERIMENT: Final = Experiment(
    name="edges",
    title="Sharp edges: where ours loses",
    source="workloads made for this",
    published="",
    cells=_cells,
    measure=_measure,
    tables=_tables,
    findings=_findings,
    code=(*SIMULATION, "loadgen/experiments/edge_scenes.py"),
)
