"""One of the workloads on which ours is expected to lose, played once."""

from __future__ import annotations

from typing import Final

from weft_bench.studies.cells import Cell, Values
from weft_bench.studies.edge_scenes import BY_NAME
from weft_bench.studies.simulating import SYSTEMS, System, figures, play_programs

OURS: Final = "weft"
RIVAL: Final = "rival"
# Played everywhere, so that no rival is chosen for its luck.
OTHERS: Final = {
    "vllm-opt": SYSTEMS["vllm-opt"],
    "mlfq": SYSTEMS["mlfq"],
    "program_fifo": System("program_fifo"),
}


def measure(cell: Cell) -> Values:
    """The figures of a cell with the settings `edge`, `programs` and `system`, which is `OURS`,
    `RIVAL` or one of `OTHERS`. Raises what `play_programs` raises."""
    from weft_bench.costs.engines import shapes
    from weft_bench.virtual.workload import BYTES_PER_TOKEN
    from weft_bench.workloads.cutting import fit

    edge = BY_NAME[cell.text("edge")]
    name = cell.text("system")
    system = edge.system if name == RIVAL else {**OTHERS, OURS: SYSTEMS[OURS]}[name]
    engines = shapes("8b-a100", edge.replicas, edge.slots, edge.kv_blocks)
    made, arrivals = edge.play(cell.seed, int(cell.number("programs")))
    ready = [fit(program, engines[0].context, BYTES_PER_TOKEN) for program in made]
    programs = [program for program in ready if program is not None]
    return figures(play_programs(programs, arrivals, engines, system, cell.seed))
