"""Sharp edges: cases where Weft loses, on adversarial workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Estimate, Measured, Values, cells
from weft_bench.studies.edge_scenes import BY_NAME, EDGES
from weft_bench.studies.experiment import SIMULATION, Experiment, Headline, Table, less
from weft_bench.studies.show import Shown, each, table
from weft_bench.studies.simulating import SYSTEMS, System, figures, play_programs

OURS: Final = "weft"
RIVAL: Final = "rival"
# Every workload also plays these, so that no rival is selected by chance.
OTHERS: Final = {
    "vllm-opt": SYSTEMS["vllm-opt"],
    "mlfq": SYSTEMS["mlfq"],
    "program_fifo": System("program_fifo"),
}


def measure(cell: Cell) -> Values:
    """Return the figures of a cell with the settings `edge`, `programs` and `system`.

    system: `OURS`, `RIVAL` or one of `OTHERS`. Raises the errors of `play_programs`.
    """
    from weft_engine.emulated.engines import shapes

    from weft_bench.virtual.workload import BYTES_PER_TOKEN
    from weft_bench.workloads.cutting import fitting

    edge = BY_NAME[cell.text("edge")]
    name = cell.text("system")
    system = edge.system if name == RIVAL else {**OTHERS, OURS: SYSTEMS[OURS]}[name]
    engines = shapes("8b-a100", edge.replicas, edge.slots, edge.kv_blocks)
    made, arrivals = edge.play(cell.seed, int(cell.number("programs")))
    programs = list(fitting(made, engines[0].context, BYTES_PER_TOKEN))
    return figures(play_programs(programs, arrivals, engines, system, cell.seed))


# Seeds of the two systems that each workload is made for.
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
    """Return the ratio of Weft to a system in the edge's figure; "" for the rival."""
    edge = BY_NAME[str(found.only("edge"))]
    name = RIVAL if system in ("", edge.rival) else system
    return found.where(system=OURS).ratio(edge.figure, found.where(system=name))


def _against(system: str) -> Shown:
    return lambda one, group: _ratio(one, system)


def _of(system: str, figure: str = "") -> Shown:
    """Return a column with a figure of a system; "" for the edge's figure."""

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
    title = "adversarial workloads; above 1 Weft is worse (full form; half the programs if quick)"
    return [table(found, title, {"workload": "edge"}, columns)]


def _headline(found: Measured) -> Headline:
    scores = []
    for name, at in each(found, "edge"):
        scores.append(less(f"{name} ({BY_NAME[name].rival})", _ratio(at)))
    return Headline("latency over that of the intended rival; less is better", scores)


EXPERIMENT: Final = Experiment(
    name="edges",
    title="Sharp edges: where Weft loses",
    source="workloads made for this purpose",
    published="",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=tuple(f"{edge.name} ({edge.what}): expected loss, because {edge.why}" for edge in EDGES),
    code=(*SIMULATION, "loadgen/weft_bench/studies/edge_scenes.py"),
    headline=_headline,
)
