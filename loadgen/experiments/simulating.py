"""What simulated experiments have in common: systems by name, a workload at a load, its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from loadgen.experiments.cells import Values
from loadgen.stats import mean, percentile
from loadgen.streams import poisson_arrivals, stream

if TYPE_CHECKING:
    from loadgen.sim.records import Simulation


@dataclass(frozen=True, slots=True)
class System:
    """An engine and its router. order, tags, swap, prefix_cache: as in `EngineSettings`."""

    order: str
    prefix_cache: bool = True
    tags: bool = False
    swap: bool = False
    balancer: str = "locality"
    plugin: Mapping[str, Any] = field(default_factory=dict)


# The order that engines follow unless they are told otherwise.
OURS: Final = "plas"
# Agentix 6.2. Its MLFQ stands on vLLM-opt and swaps what it displaces, as Agentix does.
SYSTEMS: Final[Mapping[str, System]] = {
    "vllm": System("fcfs", prefix_cache=False),
    "vllm-opt": System("fcfs"),
    "mlfq": System("mlfq", swap=True),
    "weft": System(OURS, tags=True, swap=True),
}
# Host memory for displaced calls, GiB, where a system swaps.
SWAP_GIB: Final = 32.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What is played, and on what. rate: programs a second; 0: all at once. preset: as of `weft
    bench sim`. slots, kv_blocks: 0 for the preset's own."""

    workload: str
    programs: int
    rate: float
    preset: str = "8b-a100"
    replicas: int = 1
    slots: int = 0
    kv_blocks: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def play(scene: Scene, system: System, seed: int) -> Simulation:
    """One simulation. The same scene and seed give the same programs at the same times, whatever
    the system. Raises what `simulate` and `load` raise, and RuntimeError where an invariant did not
    hold: there are no figures of such a run."""
    from loadgen.sim.engine import EngineSettings
    from loadgen.sim.shapes import shapes
    from loadgen.sim.workload import BYTES_PER_TOKEN, load
    from loadgen.sim.world import Setup, simulate

    engines = shapes(scene.preset, scene.replicas, scene.slots, scene.kv_blocks)
    programs = load(scene.workload, seed, scene.programs, min(e.context for e in engines))
    if scene.rate:
        arrivals = poisson_arrivals(stream(seed, "arrivals"), scene.rate, len(programs))
    else:
        arrivals = [0.0] * len(programs)
    settings = EngineSettings(
        policy=system.order,
        options={"experiments": True, **scene.options},
        tags=system.tags,
        swap_gib=SWAP_GIB if system.swap else 0.0,
        prefix_cache=system.prefix_cache,
        plugin=system.plugin,
    )
    setup = Setup(engines, settings, system.balancer, seed=seed, bytes_per_token=BYTES_PER_TOKEN)
    found = simulate(programs, arrivals, setup)
    if found.violations:
        raise RuntimeError(f"{scene} {system} {seed}: {'; '.join(found.violations[:3])}")
    return found


def figures(found: Simulation) -> Values:
    """What most experiments look at. latency: of programs, seconds, p50, p95 and p99 too.
    token_latency: program response time over its generated tokens (Agentix 6.2), seconds.
    hit_rate: cached share of prompt tokens. makespan: seconds."""
    programs, calls = found.programs, found.calls
    responses = [program.response_s for program in programs]
    per_token = [program.token_latency_s for program in programs]
    prompt = sum(call.prompt_tokens for call in calls)
    return {
        "latency": mean(responses),
        "latency_p50": percentile(responses, 0.50),
        "latency_p95": percentile(responses, 0.95),
        "latency_p99": percentile(responses, 0.99),
        "token_latency": mean(per_token),
        "token_latency_p95": percentile(per_token, 0.95),
        "token_latency_p99": percentile(per_token, 0.99),
        "waiting": mean([program.waiting_s for program in programs]),
        "service": mean([program.service_s for program in programs]),
        "hit_rate": sum(call.cached_tokens for call in calls) / prompt if prompt else 0.0,
        "preemptions": sum(call.preemptions for call in calls) / len(calls),
        "recomputed": sum(call.recomputed_tokens for call in calls) / len(calls),
        "swapped_out": sum(call.blocks_swapped_out for call in calls) / len(calls),
        "migrations": sum(program.migrations for program in programs) / len(calls),
        "makespan": found.end_s,
    }
