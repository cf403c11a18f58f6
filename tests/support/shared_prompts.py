"""Simulated programs with shared prompt prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.records import Simulation
from weft_bench.virtual.world import Setup, simulate
from weft_bench.workloads.cutting import fit
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_engine.emulated.engines import shapes

REPLICAS = 4
# Blocks of each replica: enough for five documents.
KV_BLOCKS = 3310


def document(number: int) -> Part:
    return Part(f"document/{number}", 9000, "system")


def play(
    begins: Callable[[Random, int], Part],
    programs: int,
    rate: float,
    balancer: str = "locality",
    said: int = 60,
    answered: int = 12,
) -> tuple[Simulation, dict[str, str]]:
    """Simulate programs of two calls each, on replicas with blocks for five documents.

    Returns the simulation and the name of each program's prefix.
    """
    traces = []
    for number in range(programs):
        name = f"p{number}"
        head = begins(stream(0, name), number)
        first = (head, Part(f"{name}/0", said, "user"))
        then = (
            *first,
            Part(f"{name}/answer", answered, "assistant"),
            Part(f"{name}/1", 20, "user"),
        )
        calls = (
            TraceCall(parts=first, output_tokens=answered, answer=f"{name}/answer"),
            TraceCall(parts=then, output_tokens=answered, after=(0,)),
        )
        traces.append(TraceProgram(name, calls))
    engines = shapes("8b-a100", REPLICAS, 16, KV_BLOCKS)
    ready = [fit(trace, engines[0].context, 4.0) for trace in traces]
    arrivals = poisson_arrivals(stream(0, "arrivals"), rate, programs)
    found = simulate(ready, arrivals, Setup(engines, EngineSettings(), balancer))
    assert found.violations == ()
    return found, {trace.id: trace.calls[0].parts[0].name for trace in traces}


def homes(found: Simulation) -> Counter[str]:
    """Count programs by the replica of their first call."""
    return Counter(program.replicas[0] for program in found.programs)


def hit_rate(found: Simulation) -> float:
    cached = sum(call.cached_tokens for call in found.calls)
    return cached / sum(call.prompt_tokens for call in found.calls)


def homes_of(found: Simulation, begins: dict[str, str], name: str) -> Counter[str]:
    """Like `homes`, for the programs whose prefix is `name`."""
    return Counter(p.replicas[0] for p in found.programs if begins[p.id] == name)
