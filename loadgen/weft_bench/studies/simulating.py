"""Common parts of simulated experiments: systems by name, scenes and their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from weft_bench.stats import mean, percentile
from weft_bench.studies.cells import Cell, Values
from weft_bench.virtual.clients import Client, Clients, Shared
from weft_bench.virtual.overlap import Overlap
from weft_bench.workloads.streams import poisson_arrivals, stream

if TYPE_CHECKING:
    from weft_engine.emulated.presets import EngineShape

    from weft_bench.virtual.records import ProgramRecord, Simulation
    from weft_bench.workloads.cutting import ReadyProgram


@dataclass(frozen=True, slots=True)
class System:
    """An engine, its router and its orchestrators' features.

    order, tags, swap, prefix_cache: as in `EngineSettings`. options: of the order, beside
    `experiments`. alpha, forecast_error, known, refuse: as in `Setup`; an alpha below 0 is that of
    the gateway. shared: as in `Clients`.
    """

    order: str
    prefix_cache: bool = True
    tags: bool = False
    swap: bool = False
    balancer: str = "locality"
    plugin: Mapping[str, Any] = field(default_factory=dict)
    overlap: Overlap = field(default_factory=Overlap)
    options: Mapping[str, Any] = field(default_factory=dict)
    alpha: float = -1.0
    forecast_error: float = 1.0
    known: bool = False
    shared: Shared = Shared.UNKNOWN
    refuse: bool = False


# The default order of the engines.
OURS: Final = "resident"
# Our order for clients that do not report when their programs end, as many do not.
UNTOLD: Final = "weft, without program ends"
# Agentix 6.2. Its MLFQ extends vLLM-opt and swaps preempted calls, as Agentix does. plas and atlas
# are Agentix itself, for single-threaded and for multi-threaded programs.
SYSTEMS: Final[Mapping[str, System]] = {
    "vllm": System("fcfs", prefix_cache=False),
    "vllm-opt": System("fcfs"),
    "mlfq": System("mlfq", swap=True),
    "plas": System("plas", swap=True),
    "atlas": System("atlas", swap=True),
    "weft": System(OURS, tags=True, swap=True),
    UNTOLD: System(OURS, tags=True, swap=True, overlap=Overlap(forget=False)),
}
# Workloads whose programs have parallel threads.
_THREADED: Final = frozenset({"lats", "mixed"})


def agentix(workload: str) -> str:
    """Return the system with which the paper plays a workload."""
    return "atlas" if workload in _THREADED else "plas"


def systems(workload: str) -> Sequence[str]:
    """Return the systems to compare on a workload. With one thread, atlas orders like plas."""
    return [name for name in SYSTEMS if name != "atlas" or workload in _THREADED]


# Host memory for preempted calls of systems that swap, GiB.
SWAP_GIB: Final = 32.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Programs and engines of a simulation.

    rate: programs a second; 0 starts all at once. preset: as in `weft bench sim`. slots, kv_blocks:
    0 for the preset's. swap_cost: factor on the preset's seconds for moving a block between device
    and host.
    """

    workload: str
    programs: int
    rate: float
    preset: str = "8b-a100"
    replicas: int = 1
    slots: int = 0
    kv_blocks: int = 0
    swap_cost: float = 1.0


# An eighth of an engine's slots and KV blocks. With an eighth of the programs, the queue and the
# cache are as full as in the whole engine, and a simulation of minutes reaches a steady state.
EIGHTH: Final[Mapping[str, int]] = {"slots": 32, "kv_blocks": 3310}


def measure(cell: Cell) -> Values:
    """Return the figures of a cell.

    Its settings are those of a `Scene`, a `system` of `SYSTEMS`, and fields of `System` to
    override. Raises TypeError for other settings, and the errors of `play`.
    """
    settings = dict(cell.settings)
    system = SYSTEMS[str(settings.pop("system"))]
    other: dict[str, Any] = {
        one.name: settings.pop(one.name) for one in fields(System) if one.name in settings
    }
    scene: Any = Scene
    return figures(play(scene(**settings), replace(system, **other), cell.seed))


def play(scene: Scene, system: System, seed: int) -> Simulation:
    """Run one simulation.

    The same scene and seed give the same programs at the same times for every system. Raises the
    errors of `simulate` and `load`, and RuntimeError if an invariant fails, because such a run has
    no figures.
    """
    from weft_engine.emulated.engines import shapes

    from weft_bench.virtual.workload import load

    engines = shapes(scene.preset, scene.replicas, scene.slots, scene.kv_blocks)
    programs = load(scene.workload, seed, scene.programs, min(e.context for e in engines))
    if scene.rate:
        arrivals = poisson_arrivals(stream(seed, "arrivals"), scene.rate, len(programs))
    else:
        arrivals = [0.0] * len(programs)
    engines = [_swapping(engine, scene.swap_cost) for engine in engines]
    return play_programs(programs, arrivals, engines, system, seed)


def _swapping(engine: EngineShape, factor: float) -> EngineShape:
    seconds = engine.cost.swapped_block_s * factor
    return replace(engine, cost=replace(engine.cost, swapped_block_s=seconds))


def play_programs(
    programs: Sequence[ReadyProgram],
    arrivals: Sequence[float],
    engines: Sequence[EngineShape],
    system: System,
    seed: int,
    deadlines: Mapping[str, float] | None = None,
    clients: Mapping[str, Client] | None = None,
) -> Simulation:
    """Simulate these programs. deadlines: as in `Setup`. clients: by program. Raises the errors of
    `play`.
    """
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.workload import BYTES_PER_TOKEN
    from weft_bench.virtual.world import Setup, simulate

    settings = EngineSettings(
        policy=system.order,
        options=system.options,
        tags=system.tags,
        swap_gib=SWAP_GIB if system.swap else 0.0,
        prefix_cache=system.prefix_cache,
        plugin=system.plugin,
    )
    setup = Setup(
        engines,
        settings,
        system.balancer,
        seed=seed,
        bytes_per_token=BYTES_PER_TOKEN,
        overlap=system.overlap,
        deadlines=deadlines or {},
        forecast_error=system.forecast_error,
        known=system.known,
        clients=Clients(clients or {}, system.shared),
        refuse=system.refuse,
    )
    if system.alpha >= 0:
        setup = replace(setup, alpha=system.alpha)
    found = simulate(programs, arrivals, setup)
    if found.violations:
        raise RuntimeError(f"{system} {seed}: {'; '.join(found.violations[:3])}")
    return found


def figures(found: Simulation) -> Values:
    """Return the figures that most experiments use.

    latency: of programs, seconds, also as p50, p95 and p99. token_latency: program response time
    over its generated tokens (Agentix 6.2), seconds. waiting, service: of programs, summed over
    their calls, seconds; per_token: over all generated tokens. swaps: KV blocks to the host and
    back, per generated token. hit_rate: cached share of prompt tokens. makespan: seconds. steady:
    of programs that arrived in the middle half of the arrivals, absent without such programs.
    loaded: the share of those that ended while programs still arrived.
    """
    programs, calls = found.programs, found.calls
    responses = [program.response_s for program in programs]
    per_token = [program.token_latency_s for program in programs]
    prompt = sum(call.prompt_tokens for call in calls)
    tokens = sum(call.output_tokens for call in calls)
    return {
        **_steady(programs),
        "latency": mean(responses),
        "latency_p50": percentile(responses, 0.50),
        "latency_p95": percentile(responses, 0.95),
        "latency_p99": percentile(responses, 0.99),
        "token_latency": mean(per_token),
        "token_latency_p95": percentile(per_token, 0.95),
        "token_latency_p99": percentile(per_token, 0.99),
        "waiting": mean([program.waiting_s for program in programs]),
        "service": mean([program.service_s for program in programs]),
        "waiting_per_token": sum(call.waiting_s for call in calls) / tokens,
        "service_per_token": sum(call.service_s for call in calls) / tokens,
        "swaps_per_token": sum(c.blocks_swapped_out + c.blocks_swapped_in for c in calls) / tokens,
        "hit_rate": sum(call.cached_tokens for call in calls) / prompt if prompt else 0.0,
        "preemptions": sum(call.preemptions for call in calls) / len(calls),
        "recomputed": sum(call.recomputed_tokens for call in calls) / len(calls),
        "swapped_out": sum(call.blocks_swapped_out for call in calls) / len(calls),
        "migrations": sum(program.migrations for program in programs) / len(calls),
        "makespan": found.end_s,
    }


def _steady(programs: Sequence[ProgramRecord]) -> Values:
    from weft_bench.virtual.records import steady

    try:
        window = steady(programs)
    except ValueError:
        # All programs arrived at once, or there are too few.
        return {}
    responses = [program.response_s for program in window.programs]
    return {
        "steady_latency": mean(responses),
        "steady_latency_p95": percentile(responses, 0.95),
        "steady_token_latency": mean([program.token_latency_s for program in window.programs]),
        "loaded": window.loaded,
    }
