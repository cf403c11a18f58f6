"""Requests of workflows that arrive one after the other, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_bench.studies.cells import Cell, Measured, Values, cells
from weft_bench.studies.curves import Throughput, joint, load_ratios, over_seeds
from weft_bench.studies.experiment import Bound, Experiment, Goal, Headline, Table, less
from weft_bench.studies.helium import CODE
from weft_bench.studies.show import each, mean, over, table

_OURS: Final = "joined"
_ALONE: Final = "alone"
_PLAIN: Final = "random"
_RIVALS: Final = (_PLAIN, "topological", "longest prefix", "parrot", "kvflow")
_SYSTEMS: Final = (*_RIVALS, _ALONE, _OURS)
# Requests, and those per second that two engines serve: of a closed batch, with the tuning seeds.
_SHAPES: Final[Mapping[str, tuple[int, float]]] = {
    "map-reduce-context": (100, 4.1),
    "reflect": (100, 5.0),
    "trading": (16, 0.185),
}
# A minute of real time, the largest `batch_ms`, divided by the scale of the engines.
_JOIN_S: Final = 7.5
_LOADS: Final = (0.55, 0.7, 0.85, 1.0, 1.15)
# Throughput is compared at the percentile that the baseline has here, latency at the next load.
_TARGET: Final = 0.7
_MIDDLE: Final = 0.85
_SEEDS: Final = 3
_FIRST_SEED: Final = 200


def measure(cell: Cell) -> Values:
    """Return the figures of a cell with the settings `shape`, `requests`, `load` and `system`.

    p50, p95: of the time from a request's arrival to its last answer, seconds. batched: calls at
    the engines, on average over time. Raises the errors of `play`.
    """
    from weft_bench.stats import percentile
    from weft_bench.workflows.rewritten import rewritten
    from weft_bench.workflows.shapes import SHAPES
    from weft_bench.workflows.systems import SYSTEMS, Scene, engines, joined

    shape, system = cell.text("shape"), cell.text("system")
    per_s = cell.number("load") * _SHAPES[shape][1]
    batch = SHAPES[shape](int(cell.number("requests")))
    if system in (_OURS, _ALONE):
        batch = rewritten(batch, cache=False)
    scene = Scene(batch, engines(), _FIRST_SEED + cell.seed, per_s)
    if system in (_OURS, _ALONE):
        found = scene.run(joined(scene, _JOIN_S if system == _OURS else 0.0))
    else:
        found = scene.run(SYSTEMS[system](scene))
    return {
        "p50": percentile(found.latencies, 0.5),
        "p95": percentile(found.latencies, 0.95),
        "hit_rate": found.hit_rate,
        "computed": found.fresh_tokens,
        "batched": found.batched,
        "per_s": batch.rows / found.seconds,
    }


def _cells(quick: bool) -> Sequence[Cell]:
    shapes = ("reflect",) if quick else tuple(_SHAPES)
    return [
        cell
        for shape in shapes
        for load in _LOADS
        for system in _SYSTEMS
        for cell in cells(
            _SEEDS, shape=shape, requests=40 if quick else _SHAPES[shape][0], load=load,
            system=system,
        )
    ]  # fmt: skip


def _ratios(found: Measured, system: str) -> dict[int, tuple[float, Bound]]:
    """Return the loads at which a system has the 95th percentile of the baseline at `_TARGET`, over
    the baseline's loads, by seed. found: of one workflow.
    """
    plain = found.where(system=_PLAIN)
    target = plain.where(load=_TARGET).series("p95")
    return load_ratios(found.where(system=system), plain, target, "p95", "load")


def _all(found: Measured, system: str) -> Throughput:
    """Return the geometric mean over workflows."""
    shapes = [_ratios(at, system) for _, at in each(found, "shape")]
    seeds = set.intersection(*(set(one) for one in shapes)) if shapes else set()
    return over_seeds(
        (
            sum(one[seed][0] for one in shapes) / len(shapes),
            joint(one[seed][1] for one in shapes),
        )
        for seed in sorted(seeds)
    )


def _tables(found: Measured) -> Sequence[Table]:
    if not found:
        return []
    columns = {
        "p50, s": mean("p50"),
        "over random's": over("p50", system=_PLAIN),
        "p95, s": mean("p95"),
        "over random's ": over("p95", system=_PLAIN),
        "hit rate": mean("hit_rate"),
        "calls at the engines": mean("batched"),
    }
    down = {"workflow": "shape", "load": "load", "system": "system"}
    others = [one for one in _SYSTEMS if one != _PLAIN]
    rows = [
        (shape, *(str(over_seeds(_ratios(at, system).values())) for system in others))
        for shape, at in each(found, "shape")
    ]
    rows.append(("all", *(str(_all(found, system)) for system in others)))
    return [
        table(found, "latency of a request", down, columns),
        Table(
            f"throughput over that of random, at its p95 with load {_TARGET}",
            ("workflow", *others),
            rows,
        ),
    ]


def _headline(found: Measured) -> Headline:
    scores = []
    for shape, at in each(found, "shape"):
        ours, plain = (at.where(system=one, load=_MIDDLE) for one in (_OURS, _PLAIN))
        scores.append(less(f"p50 of {shape}", ours.ratio("p50", plain)))
        scores.append(less(f"p95 of {shape}", ours.ratio("p95", plain)))
    return Headline(
        f"latency of joined runs over that of calls sent at once, load {_MIDDLE}; less is better",
        scores,
    )


def _goals(found: Measured) -> Sequence[Goal]:
    if not found:
        return []
    gain = _all(found, _OURS)
    what = f"requests per second at equal p95, over workflows: {gain.bound}".strip()
    return [Goal(what, gain.ratio, 1.3, less=False)]


FIGURE_12: Final = Experiment(
    name="helium-12",
    title="Requests of workflows that arrive one after the other",
    source="Helium, Figure 12, which shows the latencies of one batch of the trading workflow; "
    "here, requests arrive at random times",
    published="Helium over LangGraph: 1.18 times the requests in a batch of an engine, p50 28.3 "
    "to 20.5 s, p95 51.7 to 37.2 s",
    cells=_cells,
    measure=measure,
    tables=_tables,
    notes=(
        "engines are an eighth of an A100's, so times are an eighth: see helium-t2",
        "requests arrive in a Poisson process. load: requests per second over those that two "
        "engines serve in a closed batch",
        "random: each request is a separate run, as with LangGraph. A call is sent as soon as its "
        "inputs are there, to the engine with the fewest calls",
        f"{_ALONE}: runs over HTTP without batch_ms, each with its own queue of calls. {_OURS}: "
        "with batch_ms of a minute, which is 7.5 s here. Both use the gateway's own rules for the "
        "next call and its replica, without the start of processes",
        "topological: the requests that have arrived run operator by operator, and the next ones "
        "begin when these have ended. The other rivals are those of helium-t2. Helium's plan needs "
        "all rows at the start",
        "inputs differ between requests, and a context belongs to six of them, which come at any "
        "time. Runs make the equal calls of a request once (trading); no requests have equal calls",
        "throughput at equal p95 is interpolated between the loads; ≥ and ≤ mark systems that are "
        "fast enough at the highest load, or too slow at the lowest",
    ),
    headline=_headline,
    goals=_goals,
    code=(
        *CODE,
        "gateway/weft_gateway/runs/batch_repeats.py",
        "gateway/weft_gateway/runs/flow_calls.py",
    ),
    order="fcfs",
    first_seed=_FIRST_SEED,
)
