"""Common parts of Sutradhara's experiments: systems, engine and figures.

Section 5.1: Qwen3-14B on one A100-80GB, steps of 256 tokens, prefix caching, calls in the order of
their requests' arrival. The baseline has all of that and no overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from weft_bench.stats import percentile
from weft_bench.studies.cells import Cell, Setting, Values, cells
from weft_bench.studies.reuse import depth_figures
from weft_bench.studies.simulating import System, play_programs
from weft_bench.virtual.overlap import Overlap
from weft_bench.workloads.streams import poisson_arrivals, stream

if TYPE_CHECKING:
    from weft_bench.virtual.records import Simulation

PRESET: Final = "14b-a100"
STEP_TOKENS: Final = 256
ORDER: Final = "program_fifo"
BASELINE: Final = "baseline"
SPLIT: Final = "+PS"
DISPATCH: Final = "+PS+DS"
ALL: Final = "+PS+DS+KV"
TAGS: Final = "+KV"
FORGET: Final = "+PS+DS+KV, with program ends"
PINNED: Final = "TTL 6 s"
# Table 2's rows; tags alone; everything plus reported program ends, as the gateway does; Continuum
# of section 6, which may pin the whole cache. Every row with prefills tags them, because the paper
# gives them the highest priority already in 4.1.
MODES: Final[Mapping[str, System]] = {
    BASELINE: System(ORDER, overlap=Overlap(tell_tags=False, forget=False)),
    SPLIT: System(ORDER, tags=True, overlap=Overlap(split=True, tell_tags=False, forget=False)),
    DISPATCH: System(
        ORDER, tags=True, overlap=Overlap(split=True, dispatch=True, tell_tags=False, forget=False)
    ),
    ALL: System(ORDER, tags=True, overlap=Overlap(split=True, dispatch=True, forget=False)),
    TAGS: System(ORDER, tags=True, overlap=Overlap(forget=False)),
    FORGET: System(ORDER, tags=True, overlap=Overlap(split=True, dispatch=True)),
    PINNED: System(
        ORDER,
        tags=True,
        plugin={"pin_share": 1.0},
        overlap=Overlap(tell_tags=False, retain_s=6.0, forget=False),
    ),
}
WIDE: Final = "production_wide"
# The number of requests of each workload that the paper replays, with five seeds.
REQUESTS: Final[Mapping[str, int]] = {WIDE: 120, "web_search": 56, "swe": 60}
SEEDS: Final = 5
QUICK_SEEDS: Final = 3
QUICK_REQUESTS: Final = 30
# Requests a second. The paper's rates are unchanged: at 0.01 its baseline has 0.67 requests at once
# (its median request takes 67 s) and this simulation's 0.7. The heavier rates are our own.
PAPER_RATES: Final = (0.0075, 0.01, 0.0125, 0.015)
RATES: Final = (*PAPER_RATES, 0.025, 0.035)
# Loads for the comparison of parts: the paper's, and one at which requests wait for each other.
LIGHT: Final = 0.0075
HEAVY: Final = 0.025
# Percentiles of the time to the first token, for a distribution.
SHARES: Final = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)


def played(
    quick: bool, modes: Sequence[str], rates: Sequence[float], workload: str = WIDE
) -> Sequence[Cell]:
    """Return the cells of these modes and rates for one workload."""
    programs = QUICK_REQUESTS if quick else REQUESTS[workload]
    seeds = QUICK_SEEDS if quick else SEEDS
    settings: list[dict[str, Setting]] = [
        {"mode": mode, "rate": rate, "programs": programs, "workload": workload}
        for rate in rates
        for mode in modes
    ]
    return [cell for one in settings for cell in cells(seeds, **one)]


def measure(cell: Cell) -> Values:
    """Return the figures of a cell with the settings `mode`, `workload`, `programs` and `rate`.

    These are `latencies`, `depth_figures` and `tools`: the run time of each turn's longest tools as
    a share of the time to the first token, median over requests. Raises the errors of
    `play_programs`.
    """
    from weft_engine.emulated.engines import shapes

    from weft_bench.virtual.workload import load

    engines = [replace(shape, step_tokens=STEP_TOKENS) for shape in shapes(PRESET, 1)]
    count = int(cell.number("programs"))
    programs = load(cell.text("workload"), cell.seed, count, engines[0].context)
    arrivals = poisson_arrivals(stream(cell.seed, "arrivals"), cell.number("rate"), count)
    found = play_programs(programs, arrivals, engines, MODES[cell.text("mode")], cell.seed)
    tools_s = {one.id: sum(call.call.gap_s for call in one.calls[:-1]) for one in programs}
    shares = [
        tools_s[program.id] / ftr
        for program, ftr in zip(found.programs, found.rendered_s(), strict=True)
    ]
    return {
        **latencies(found),
        **depth_figures(programs, found),
        "tools": percentile(shares, 0.5),
    }


def latencies(found: Simulation) -> Values:
    """Return latency percentiles over requests, seconds, and the share of prefills.

    ftr_p..: arrival to the first token of the final answer. e2e_p..: arrival to its last token.
    ahead_service: the prefills' share of the service of all calls.
    """
    ftr = found.rendered_s()
    e2e = [program.response_s for program in found.programs]
    ahead = sum(prefill.service_s for prefill in found.prefills)
    turns = sum(call.service_s for call in found.calls)
    return {
        **{f"ftr_p{share}": percentile(ftr, share / 100) for share in SHARES},
        "e2e_p50": percentile(e2e, 0.5),
        "e2e_p90": percentile(e2e, 0.9),
        "ahead_service": ahead / (ahead + turns),
    }
