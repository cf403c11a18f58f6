"""Three worlds for an order: an engine's cache, which is short, one without end, and none."""

from __future__ import annotations

from typing import Final

from weft_bench.stats import mean, percentile
from weft_bench.studies.cells import Cell, Values
from weft_bench.studies.simulating import EIGHTH, OURS, Scene, System, play
from weft_bench.virtual.overlap import Overlap
from weft_bench.virtual.window import steady

SHORT: Final = "short cache"
ENDLESS: Final = "endless cache"
NONE: Final = "no cache"
WORLDS: Final = (SHORT, ENDLESS, NONE)
# The order that is ours, where engines are not told when programs end.
UNTOLD: Final = f"{OURS}, ends not told"
# Blocks for all tokens of all programs here, several times over.
_ENDLESS_BLOCKS: Final = 150_000


def measure(cell: Cell) -> Values:
    """The figures of a cell with the settings `workload`, `programs`, `rate`, `world` and `order`
    (one of the engine's, or `UNTOLD`), over the programs of the middle. latency, latency_p95: of
    programs, seconds. waiting: its share that they waited. hit_rate: of their calls. loaded: the
    share of them that ended while others still came. Raises what `play` raises."""
    world = cell.text("world")
    blocks = _ENDLESS_BLOCKS if world == ENDLESS else EIGHTH["kv_blocks"]
    scene = Scene(
        cell.text("workload"),
        int(cell.number("programs")),
        cell.number("rate"),
        slots=EIGHTH["slots"],
        kv_blocks=blocks,
    )
    order = cell.text("order")
    told = order != UNTOLD
    # Nothing but the order and the cache: what is displaced is computed again in every world.
    system = System(
        order if told else OURS, prefix_cache=world != NONE, overlap=Overlap(forget=told)
    )
    found = play(scene, system, cell.seed)
    window = steady(found.programs)
    responses = [program.response_s for program in window.programs]
    names = {program.id for program in window.programs}
    calls = [call for call in found.calls if call.program in names]
    return {
        "latency": mean(responses),
        "latency_p95": percentile(responses, 0.95),
        "waiting": sum(program.waiting_s for program in window.programs) / sum(responses),
        "hit_rate": sum(call.cached_tokens for call in calls) / sum(c.prompt_tokens for c in calls),
        "loaded": window.loaded,
    }
