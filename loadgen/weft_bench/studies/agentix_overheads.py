"""Agentix's breakdown of a token's time, and the value of swapping preempted calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_engine.emulated.presets import preset

from weft_bench.studies.agentix_single import load_cells
from weft_bench.studies.cells import Cell, Measured, Setting, cells, estimate
from weft_bench.studies.experiment import Claim, Experiment, Headline, Table, less
from weft_bench.studies.show import each, hit_rates, mean, over, table
from weft_bench.studies.simulating import EIGHTH, UNTOLD, agentix, measure

_BLOCK_S: Final = preset("8b-a100").cost.swapped_block_s
# Ratio of copying block by block to copying all blocks at once: the middle of the paper's 3 to 7.
_SINGLE_COPIES: Final = 5.0
# Section 6.5: up to 18 times fewer swaps.
_FEWER_SWAPS: Final = 1 / 18
# Treatments of preempted calls, as settings of cells.
_WAYS: Final[dict[str, dict[str, Setting]]] = {
    "batched": {},
    "block by block": {"swap_cost": _SINGLE_COPIES},
    "no swap": {"swap": False},
}
_ORDERS: Final = ("mlfq", "plas", "weft")


def _breakdown_cells(quick: bool) -> Sequence[Cell]:
    return [cell for cell in load_cells(quick) if cell["workload"] in ("sharegpt", "lats")]


def _swapping(found: Measured, group: Measured) -> object:
    """Return the engine's seconds of moving blocks between device and host, per token."""
    return estimate([blocks * _BLOCK_S for blocks in found.series("swaps_per_token").values()])


def _breakdown(found: Measured) -> Sequence[Table]:
    columns = {
        "latency": mean("token_latency"),
        "waiting": mean("waiting_per_token"),
        "waiting over vllm-opt's": over("waiting_per_token", system="vllm-opt"),
        "execution": mean("service_per_token"),
        "swaps": _swapping,
        "hit rate": mean("hit_rate"),
    }
    return [
        table(
            at,
            f"{workload}: seconds per token, {at.only('programs')} programs; waiting and execution "
            "are summed over calls, including parallel ones; swaps are the engine's time for "
            "moving blocks between device and host, and part of execution",
            {"programs/s": "rate", "system": "system"},
            columns,
            # Light loads have nothing to break down.
            lambda one, at=at: one.only("rate") in at.levels("rate")[-3:],  # type: ignore[misc]
        )
        for workload, at in each(found, "workload")
    ]


def _breakdown_headline(found: Measured) -> Headline:
    scores = []
    for workload, at in each(found, "workload"):
        at = at.where(rate=at.levels("rate")[-1])
        for ours, name in (("weft", workload), (UNTOLD, f"{workload}, without program ends")):
            ratio = at.where(system=ours).ratio("waiting_per_token", at.where(system="mlfq"))
            scores.append(less(name, ratio))
    what = "waiting per token over mlfq's at the heaviest load; less is better"
    return Headline(what, scores, "much less; no number")


def _breakdown_claims(found: Measured) -> Sequence[Claim]:
    claims = []
    for workload, at in each(found, "workload"):
        at = at.where(rate=at.levels("rate")[-1])
        name = agentix(workload)
        for rival in ("vllm-opt", "mlfq"):
            ratio = at.where(system=name).ratio("waiting_per_token", at.where(system=rival))
            rates = hit_rates(at, name, rival)
            subject = f"{workload}: waiting per token, {name}"
            claims.append(Claim(subject, rival, less("", ratio), "less", hit_rates=rates))
    return claims


def _swap_cells(quick: bool) -> Sequence[Cell]:
    loads = [("sharegpt", 240, 0.2), ("sharegpt", 240, 0.8), ("lats", 36, 0.2)]
    return [
        cell
        for workload, programs, rate in ([("sharegpt", 90, 0.3)] if quick else loads)
        for order in _ORDERS
        for way in _WAYS.values()
        for cell in cells(
            3, system=order, workload=workload, programs=programs, rate=rate, **EIGHTH, **way
        )
    ]


def _swap_tables(found: Measured) -> Sequence[Table]:
    ways = found.named("way", _WAYS)
    title = (
        f"swapping; assumed: {_BLOCK_S * 1e6:.0f} us a block if all are copied at once (full speed "
        f"of the host link), {_SINGLE_COPIES:.0f} times that block by block (published: 3 to 7); "
        "`weft bench swap` measures both on a GPU"
    )
    down = {"workload": "workload", "programs/s": "rate", "order": "system", "swap": "way"}
    columns = {
        "s/token": mean("token_latency"),
        "over batched": over("token_latency", way="batched"),
        "preemptions a call": mean("preemptions"),
        "blocks swapped a token": mean("swaps_per_token"),
        "over mlfq's": lambda one, group: one.ratio(
            "swaps_per_token",
            ways.where(
                workload=one.only("workload"),
                rate=one.only("rate"),
                way=one.only("way"),
                system="mlfq",
            ),
        ),
        "tokens recomputed a call": mean("recomputed"),
    }
    return [table(ways, title, down, columns)]


def _swap_headline(found: Measured) -> Headline:
    batched = found.named("way", _WAYS).where(way="batched")
    scores = [
        less(
            f"{at.only('workload')} at {at.only('rate')}/s",
            at.where(system="weft").ratio("swaps_per_token", at.where(system="mlfq")),
        )
        for _, at in each(batched, "workload", "rate")
    ]
    return Headline("blocks swapped per token over mlfq's; less is better", scores, "down to 1/18")


def _swap_claims(found: Measured) -> Sequence[Claim]:
    batched = found.named("way", _WAYS).where(way="batched")
    claims = []
    for _, at in each(batched, "workload", "rate"):
        ratio = at.where(system="plas").ratio("swaps_per_token", at.where(system="mlfq"))
        subject = f"{at.only('workload')} at {at.only('rate')}/s: swaps per token, plas"
        rates = hit_rates(at, "plas", "mlfq")
        claims.append(Claim(subject, "mlfq", less("", ratio), "down to 1/18", _FEWER_SWAPS, rates))
    return claims


FIGURE_17: Final = Experiment(
    name="agentix-17",
    title="Breakdown of a token's time, one engine",
    source="Agentix, section 6.5, Figure 17",
    published="Agentix waits much less and swaps for less time than MLFQ, with a small overhead of "
    "its scheduler; the figure has no numbers",
    cells=_breakdown_cells,
    measure=measure,
    tables=_breakdown,
    notes=(
        "the scheduler's own time is not included, because simulated steps take no time for it; "
        "`weft bench scheduler` measures it",
    ),
    headline=_breakdown_headline,
    claims=_breakdown_claims,
)
FIGURE_18: Final = Experiment(
    name="agentix-18",
    title="Cost and benefit of swapping",
    source="Agentix, section 6.5, Figure 18",
    published="up to 18 times fewer swaps, 3 to 7 times shorter swaps, and 1.3 times the "
    "throughput of vLLM's own copies",
    cells=_swap_cells,
    measure=measure,
    tables=_swap_tables,
    headline=_swap_headline,
    claims=_swap_claims,
)
