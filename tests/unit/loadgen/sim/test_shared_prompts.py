"""New programs placed by what their prompts share, in virtual time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random

from loadgen.fit import fit
from loadgen.schema import Part, TraceCall, TraceProgram
from loadgen.sim.engine import EngineSettings
from loadgen.sim.records import Simulation
from loadgen.sim.shapes import shapes
from loadgen.sim.world import Setup, simulate
from loadgen.stats import mean
from loadgen.streams import poisson_arrivals, stream

REPLICAS = 4


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
    """Programs of two calls, each replica with blocks for five documents; what each program begins
    with, too."""
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
    engines = shapes("8b-a100", REPLICAS, 16, 3310)
    ready = [fit(trace, engines[0].context, 4.0) for trace in traces]
    arrivals = poisson_arrivals(stream(0, "arrivals"), rate, programs)
    found = simulate(ready, arrivals, Setup(engines, EngineSettings(), balancer))
    assert found.violations == ()
    return found, {trace.id: trace.calls[0].parts[0].name for trace in traces}


def homes(found: Simulation) -> Counter[str]:
    return Counter(program.replicas[0] for program in found.programs)


def latency(found: Simulation) -> float:
    return mean([program.response_s for program in found.programs])


def hit_rate(found: Simulation) -> float:
    cached = sum(call.cached_tokens for call in found.calls)
    return cached / sum(call.prompt_tokens for call in found.calls)


def test_each_replica_keeps_a_few_of_the_documents_that_programs_share():
    asked = lambda rng, _: document(rng.randrange(10))  # noqa: E731
    ours, begins = play(asked, 80, 6.0)
    tree, _ = play(asked, 80, 6.0, "prefix_tree")
    assert latency(ours) <= 1.15 * latency(tree)
    assert hit_rate(ours) > 0.85
    places = defaultdict(set)
    for program in ours.programs:
        places[begins[program.id]].update(program.replicas)
    assert mean([len(names) for names in places.values()]) < 2


def test_one_system_prompt_of_all_programs_leaves_the_load_balanced():
    found, _ = play(lambda *_: Part("system", 2000, "system"), 80, 6.0, said=600)
    counts = homes(found)
    assert len(counts) == REPLICAS
    assert max(counts.values()) <= 1.3 * 80 / REPLICAS
    assert hit_rate(found) > 0.8


def test_programs_that_come_one_by_one_do_not_all_go_where_the_first_one_went():
    found, _ = play(lambda *_: Part("system", 2000, "system"), 60, 0.5, said=600)
    counts = homes(found)
    assert len(counts) == REPLICAS
    assert max(counts.values()) <= 30


def test_a_document_that_most_ask_for_is_brought_to_more_replicas_and_rare_ones_are_not():
    def asked(rng: Random, _: int) -> Part:
        return document(0 if rng.random() < 0.7 else rng.randrange(1, 8))

    ours, begins = play(asked, 100, 14.0, answered=100)
    tree, _ = play(asked, 100, 14.0, "prefix_tree", answered=100)
    hot = homes_of(ours, begins, document(0).name)
    rare = [homes_of(ours, begins, document(n).name) for n in range(1, 8)]
    assert len(hot) >= 2
    assert mean([len(names) for names in rare if names]) < len(hot)
    assert latency(ours) <= latency(tree)


def homes_of(found: Simulation, begins: dict[str, str], name: str) -> Counter[str]:
    return Counter(p.replicas[0] for p in found.programs if begins[p.id] == name)
