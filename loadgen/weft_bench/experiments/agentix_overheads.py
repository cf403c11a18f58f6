"""Agentix's breakdown of a token's time, and what swapping what was displaced is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.experiments.agentix_single import load_cells
from weft_bench.experiments.cells import Cell, Estimate, Measured, Setting, cells, estimate
from weft_bench.experiments.experiment import Experiment, Table
from weft_bench.experiments.headline import Headline, less
from weft_bench.experiments.simulating import EIGHTH, UNTOLD, measure
from weft_bench.sim.presets import preset

_WORKLOADS: Final = ("sharegpt", "lats")
_BLOCK_S: Final = preset("8b-a100").cost.swapped_block_s
# Seconds of one copy for each block, in those of all at once: the paper's 3 to 7, in the middle.
_SINGLE_COPIES: Final = 5.0
# Ways to treat what was displaced, as settings of cells.
_WAYS: Final[dict[str, dict[str, Setting]]] = {
    "batched": {},
    "block by block": {"swap_cost": _SINGLE_COPIES},
    "no swap": {"swap": False},
}
_ORDERS: Final = ("mlfq", "plas", "weft")


def _breakdown_cells(quick: bool) -> Sequence[Cell]:
    return [cell for cell in load_cells(quick) if cell["workload"] in _WORKLOADS]


def _swapping(found: Measured) -> Estimate:
    """The engine's seconds for blocks between device and host, per token."""
    return estimate([blocks * _BLOCK_S for blocks in found.series("swaps_per_token").values()])


def _breakdown(found: Measured) -> Sequence[Table]:
    tables = []
    for workload in found.levels("workload"):
        at = found.where(workload=workload)
        rows = []
        # Beside the light loads there is nothing to break down.
        for rate in at.levels("rate")[-3:]:
            for system in at.levels("system"):
                one = at.where(rate=rate, system=system)
                rows.append(
                    (
                        str(rate),
                        str(system),
                        str(one.estimate("token_latency")),
                        str(one.estimate("waiting_per_token")),
                        str(one.estimate("service_per_token")),
                        str(_swapping(one)),
                        str(one.estimate("hit_rate")),
                    )
                )
        columns = (
            "programs/s",
            "system",
            "latency",
            "waiting",
            "execution",
            "swaps",
            "hit rate",
        )
        title = (
            f"{workload}: seconds per token, {at.levels('programs')[0]} programs; waiting and "
            "execution are summed over calls, also over those side by side; swaps are the "
            "engine's time for blocks between device and host, within execution"
        )
        tables.append(Table(title, columns, rows, labels=2))
    return tables


def _breakdown_findings(found: Measured) -> Sequence[str]:
    said = []
    for workload in map(str, found.levels("workload")):
        at = found.where(workload=workload)
        at = at.where(rate=at.levels("rate")[-1])
        base = at.where(system="vllm-opt")
        shares = [
            f"{system} {at.where(system=system).ratio('waiting_per_token', base)}"
            for system in at.levels("system")
            if system not in {"vllm", "vllm-opt"}
        ]
        said.append(
            f"{workload} under the heaviest load, waiting per token over vllm-opt's: "
            + ", ".join(shares)
        )
    if said:
        said.append(
            "the scheduler's own time is not in these figures, since simulated steps hold none: "
            "`weft bench scheduler` measures it"
        )
    return said


def _swap_cells(quick: bool) -> Sequence[Cell]:
    loads: dict[str, tuple[int, Sequence[float]]] = (
        {"sharegpt": (90, (0.3,))} if quick else {"sharegpt": (240, (0.2, 0.8))}
    )
    if not quick:
        loads["lats"] = (36, (0.2,))
    return [
        cell
        for workload, (programs, rates) in loads.items()
        for rate in rates
        for order in _ORDERS
        for way in _WAYS.values()
        for cell in cells(
            3, system=order, workload=workload, programs=programs, rate=rate, **EIGHTH, **way
        )
    ]


def _way(found: Measured, name: str) -> Measured:
    """The cells that treat what was displaced so."""
    return found.like(_WAYS[name], ("swap", "swap_cost"))


def _swap_tables(found: Measured) -> Sequence[Table]:
    rows = []
    for workload in found.levels("workload"):
        for rate in found.where(workload=workload).levels("rate"):
            for order in _ORDERS:
                at = found.where(workload=workload, rate=rate, system=order)
                base = _way(at, "batched")
                for name in _WAYS:
                    one = _way(at, name)
                    blocks = one.estimate("swaps_per_token")
                    rows.append(
                        (
                            str(workload),
                            str(rate),
                            order,
                            name,
                            str(one.estimate("token_latency")),
                            str(one.ratio("token_latency", base)),
                            str(one.estimate("preemptions")),
                            str(blocks),
                            str(one.estimate("recomputed")),
                        )
                    )
    columns = (
        "workload",
        "programs/s",
        "order",
        "displaced calls",
        "s/token",
        "over batched",
        "preemptions a call",
        "blocks swapped a token",
        "tokens recomputed a call",
    )
    title = (
        f"swapping; assumed: {_BLOCK_S * 1e6:.0f} us a block when all are copied at once (the host "
        f"link's full speed), {_SINGLE_COPIES:.0f} times that block by block (published: 3 to 7); "
        "`weft bench swap` measures both on a GPU"
    )
    return [Table(title, columns, rows, labels=4)] if rows else []


def _swap_findings(found: Measured) -> Sequence[str]:
    said = []
    for workload in map(str, found.levels("workload")):
        for rate in found.where(workload=workload).levels("rate"):
            at = found.where(workload=workload, rate=rate)
            swapped = _way(at, "batched")
            mlfq = swapped.where(system="mlfq")
            fewer = [
                f"{order} {swapped.where(system=order).ratio('swaps_per_token', mlfq)}"
                for order in _ORDERS[1:]
            ]
            dearer = [
                f"{order} {ratio}"
                for order in _ORDERS
                for one in [at.where(system=order)]
                for ratio in [
                    _way(one, "block by block").ratio("token_latency", _way(one, "batched"))
                ]
            ]
            said.append(
                f"{workload} at {rate}/s: blocks swapped over mlfq's: {', '.join(fewer)}; latency "
                f"with copies block by block over batched ones: {', '.join(dearer)}"
            )
    return said


def _breakdown_headline(found: Measured) -> Headline:
    scores = []
    for workload in map(str, found.levels("workload")):
        at = found.where(workload=workload)
        at = at.where(rate=at.levels("rate")[-1])
        for ours, name in (("weft", workload), (UNTOLD, f"{workload}, ends not told")):
            ratio = at.where(system=ours).ratio("waiting_per_token", at.where(system="mlfq"))
            scores.append(less(name, ratio))
    what = "waiting per token over mlfq's under the heaviest load; less is better"
    return Headline(what, scores, "much less; no number")


def _swap_headline(found: Measured) -> Headline:
    scores = []
    for workload in map(str, found.levels("workload")):
        for rate in found.where(workload=workload).levels("rate"):
            at = _way(found.where(workload=workload, rate=rate), "batched")
            ratio = at.where(system="weft").ratio("swaps_per_token", at.where(system="mlfq"))
            scores.append(less(f"{workload} at {rate}/s", ratio))
    return Headline("blocks swapped per token over mlfq's; less is better", scores, "down to 1/18")


FIGURE_17: Final = Experiment(
    name="agentix-17",
    title="What a token's time goes into, one engine",
    source="Agentix, section 6.5, Figure 17",
    published="Agentix waits much less and swaps for less time than MLFQ, with a minor overhead of "
    "its scheduler; the figure has no numbers",
    cells=_breakdown_cells,
    measure=measure,
    tables=_breakdown,
    findings=_breakdown_findings,
    headline=_breakdown_headline,
)
FIGURE_18: Final = Experiment(
    name="agentix-18",
    title="What swapping costs and saves",
    source="Agentix, section 6.5, Figure 18",
    published="up to 18 times fewer swaps, 3 to 7 times shorter ones, and 1.3 times the throughput "
    "of vLLM's own copies",
    cells=_swap_cells,
    measure=measure,
    tables=_swap_tables,
    findings=_swap_findings,
    headline=_swap_headline,
)
