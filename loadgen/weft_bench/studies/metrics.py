"""Figures of one play, by the name that a study gives in `measure`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Final

from weft_bench.stats import mean, percentile
from weft_bench.studies.cells import Cell, Values
from weft_bench.studies.plays import ATTAINED, DeadlinePlays, fast, play, programs
from weft_bench.studies.reuse import depth_figures
from weft_bench.studies.study import Scene, Study, System
from weft_bench.virtual.clients import Client
from weft_bench.workloads.text2sql import SINGLE

if TYPE_CHECKING:
    from weft_bench.virtual.records import ProgramRecord

# Percentiles of the time to the final answer's first token, for a distribution.
_SHARES: Final = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)
# The stages of text to SQL by the beginning of a prompt (HexGen-Flow, Table 2).
_STAGES: Final[Mapping[str, int]] = {
    "retriever": 1,
    "keywords": 1,
    "candidate": 2,
    "revise": 3,
    "unit tester": 4,
    "unit test": 4,
    "evaluate": 4,
}
# The factor on the deadlines of the second of two tenants.
_LOOSER: Final = 2.0
# The factor on the deadlines that a lying tenant states.
_LIES: Final[Mapping[str, float]] = {
    "none": 1.0,
    "half of the deadline": 0.5,
    "a quarter of the deadline": 0.25,
}
_LIAR: Final = "tenant-0"
_MINUTE_S: Final = 60.0


def measure(study: Study, cell: Cell) -> Values:
    """Return the figures of a cell. Raises the errors of `plays.play`."""
    seed = study.first_seed + cell.seed
    return MEASURES[study.measure](study.scene_of(cell), study.system_of(cell), seed)


def of_programs(scene: Scene, system: System, seed: int) -> Values:
    """Return the figures of programs.

    latency: of programs, seconds, also as p95. token_latency: a program's response time
    over its generated tokens (Agentix 6.2), seconds; steady: of programs that arrived in the middle
    half of the arrivals. waiting, service, swaps (KV blocks to the host and back): over all
    generated tokens. hit_rate: cached share of prompt tokens. makespan: seconds.
    """
    found = play(scene, system, seed)
    calls = found.calls
    responses = [program.response_s for program in found.programs]
    per_token = [program.token_latency_s for program in found.programs]
    tokens = sum(call.output_tokens for call in calls)
    return {
        **_steady(found.programs),
        "latency": mean(responses),
        "latency_p95": percentile(responses, 0.95),
        "token_latency": mean(per_token),
        "token_latency_p95": percentile(per_token, 0.95),
        "token_latency_p99": percentile(per_token, 0.99),
        "waiting_per_token": sum(call.waiting_s for call in calls) / tokens,
        "service_per_token": sum(call.service_s for call in calls) / tokens,
        "swaps_per_token": sum(c.blocks_swapped_out + c.blocks_swapped_in for c in calls) / tokens,
        "hit_rate": sum(c.cached_tokens for c in calls) / sum(c.prompt_tokens for c in calls),
        "makespan": found.end_s,
    }


def of_tokens(scene: Scene, system: System, seed: int) -> Values:
    """Return the figures of running answers while the longest prompt is computed.

    between_p50, between_p99: seconds between two tokens of an answer, if some of this time lies
    between the arrival of the longest prompt and its first token. first_token: seconds between
    these two.
    """
    found = play(scene, system, seed, watched=True)
    longest = max(found.calls, key=lambda call: call.prompt_tokens)
    begin, end = longest.arrival_s, longest.first_token_s
    between = [
        after - before
        for times in found.tokens
        for before, after in pairwise(times)
        if before < end and after > begin
    ]
    return {
        "between_p50": percentile(between, 0.50),
        "between_p99": percentile(between, 0.99),
        "first_token": end - begin,
    }


def of_kinds(scene: Scene, system: System, seed: int) -> Values:
    """Return the figures of each kind of program: a program's name up to its number.

    For the kind "chat": `chat`, `chat_p95`: time from arrival to the last answer, seconds;
    `chat_first_p95`: of its calls until the first token; `chat_wait_p95`, `chat_wait_max`: of its
    calls until an engine computes for them; `chat_first_minute`: calls that ended in the 60 s from
    its first arrival. The same without a kind for all programs, and `hit_rate`.
    """
    found = play(scene, system, seed)
    kinds: dict[str, set[str]] = defaultdict(set)
    for program in found.programs:
        kinds[program.id.rpartition("-")[0].replace("-", "_") + "_"].add(program.id)
        kinds[""].add(program.id)
    values: dict[str, float] = {}
    for kind, names in kinds.items():
        responses = [program.response_s for program in found.programs if program.id in names]
        calls = [call for call in found.calls if call.program in names]
        waits = [call.start_s - call.arrival_s for call in calls]
        begin = min(call.arrival_s for call in calls)
        values |= {
            kind.rstrip("_") or "latency": mean(responses),
            f"{kind}p95": percentile(responses, 0.95),
            f"{kind}first_p95": percentile([c.first_token_s - c.arrival_s for c in calls], 0.95),
            f"{kind}wait_p95": percentile(waits, 0.95),
            f"{kind}wait_max": max(waits),
            f"{kind}first_minute": sum(call.end_s < begin + _MINUTE_S for call in calls),
        }
    prompts = sum(call.prompt_tokens for call in found.calls)
    return {
        **values,
        "hit_rate": sum(call.cached_tokens for call in found.calls) / prompts,
    }


def _steady(found: Sequence[ProgramRecord]) -> Values:
    from weft_bench.virtual.records import steady

    try:
        window = steady(found).programs
    except ValueError:
        # All programs arrived at once, or there are too few.
        return {}
    return {"steady_token_latency": mean([program.token_latency_s for program in window])}


def of_requests(scene: Scene, system: System, seed: int) -> Values:
    """Return the figures of requests with tools (Sutradhara).

    ftr_p..: arrival to the first token of the final answer, seconds. e2e_p..: arrival to its last
    token. ahead_service: the share of prefills in the service of all calls. tools: the run time of
    each turn's longest tools as a share of the FTR, median over requests. Also `depth_figures`.
    """
    found, played = programs(scene, seed, scene.programs), play(scene, system, seed)
    ftr = played.rendered_s()
    e2e = [program.response_s for program in played.programs]
    ahead = sum(prefill.service_s for prefill in played.prefills)
    turns = sum(call.service_s for call in played.calls)
    tools_s = [sum(call.call.gap_s for call in one.calls[:-1]) for one in found]
    shares = [tools / rendered for tools, rendered in zip(tools_s, ftr, strict=True)]
    return {
        **{f"ftr_p{share}": percentile(ftr, share / 100) for share in _SHARES},
        "e2e_p50": percentile(e2e, 0.5),
        "e2e_p90": percentile(e2e, 0.9),
        "ahead_service": ahead / (ahead + turns),
        "tools": percentile(shares, 0.5),
        **depth_figures(found, played),
    }


def of_deadlines(scene: Scene, system: System, seed: int) -> Values:
    """Return the figures of queries with deadlines (HexGen-Flow).

    p95_scale: of the deadlines; if the scene has none, the least that 95% of the queries attain.
    attained: share of queries within it. throughput: queries a second from the first arrival to the
    last end. slowdown, slowdown_p95: time over the time alone. hit_rate: cached share of prompt
    tokens. fast: share of prompt tokens on the engines of the first kind. single_p95: the slowdown
    of single calls beside the queries.
    """
    plays = DeadlinePlays(scene, system, seed)

    def slowdowns(at: float, single: bool = False) -> list[float]:
        return [
            program.response_s / plays.alone[program.id]
            for program in plays.counted(at)
            if program.id.endswith(SINGLE) is single
        ]

    scale = scene.scale or plays.least_scale(slowdowns)
    found = slowdowns(scale)
    served = [one for one in found if one < inf]
    counted = plays.counted(scale)
    queries = [one for one in counted if one.calls and not one.id.endswith(SINGLE)]
    begun, ended = min(one.arrival_s for one in counted), max(one.end_s for one in queries)
    names = {one.id for one in counted}
    calls = [call for call in plays.at(scale).calls if call.program in names]
    prompts = sum(call.prompt_tokens for call in calls)
    on_fast = sum(call.prompt_tokens for call in calls if call.replica in fast(scene))
    singles = slowdowns(scale, single=True)
    return {
        "p95_scale": scale,
        "attained": sum(one <= scale for one in found) / len(found),
        "throughput": len(queries) / (ended - begun),
        "slowdown": mean(served),
        "slowdown_p95": percentile(served, ATTAINED),
        "hit_rate": sum(call.cached_tokens for call in calls) / prompts,
        "fast": on_fast / prompts,
        **({"single_p95": percentile(singles, ATTAINED)} if singles else {}),
    }


def of_stages(scene: Scene, system: System, seed: int) -> Values:
    """Return the percentage of each stage of text to SQL in the calls of each engine,
    `stage1_replica0` and so on.
    """
    plays = DeadlinePlays(scene, system, seed)
    stages = {
        (program.id, number): _STAGES[
            call.call.parts[0].name.removeprefix("text2sql/").rstrip(" 0123456789")
        ]
        for program in plays.programs
        for number, call in enumerate(program.calls)
    }
    counted = {program.id for program in plays.counted(scene.scale)}
    found = Counter(
        (call.replica, stages[call.program, call.number])
        for call in plays.at(scene.scale).calls
        if call.program in counted
    )
    values = {}
    for number in range(scene.replicas):
        of = [found[f"replica-{number}", stage] for stage in range(1, 5)]
        for stage, count in enumerate(of, 1):
            values[f"stage{stage}_replica{number}"] = 100 * count / (sum(of) or 1)
    return values


def of_tenants(scene: Scene, system: System, seed: int) -> Values:
    """Return the figures of tenants with deadlines.

    jain, jain_slowdown: Jain's index of the tenants' attainment and of their mean slowdown.
    attained, p95, slowdown: of the first tenant (`first_...`) and of the others; the P95 of the
    slowdown is relative to a tenant's own factor on deadlines.
    """
    stated = _LIES[scene.lie]
    own = [_LOOSER if scene.tenants == 2 and number else 1.0 for number in range(scene.tenants)]

    def client(place: int) -> tuple[Client, float]:
        number = place % scene.tenants
        if number:
            return Client(f"tenant-{number}"), own[number]
        return Client(_LIAR), stated

    plays = DeadlinePlays(scene, system, seed, client)
    slowdowns: dict[str, list[float]] = defaultdict(list)
    for program in plays.counted(scene.scale):
        tenant = plays.clients[program.id].tenant
        relative = own[int(tenant.rpartition("-")[2])]
        slowdowns[tenant].append(program.response_s / plays.alone[program.id] / relative)
    values = {
        "jain": jain([_within(found, scene.scale) for found in slowdowns.values()]),
        "jain_slowdown": jain([mean(found) for found in slowdowns.values()]),
    }
    others = [one for tenant, found in slowdowns.items() if tenant != _LIAR for one in found]
    for name, found in (("first", slowdowns[_LIAR]), ("others", others)):
        values[f"{name}_attained"] = _within(found, scene.scale)
        values[f"{name}_p95"] = percentile(found, ATTAINED)
        values[f"{name}_slowdown"] = mean(found)
    return values


def _within(slowdowns: Sequence[float], scale: float) -> float:
    return sum(one <= scale for one in slowdowns) / len(slowdowns)


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all are equal, 1/n if one has all. All zero is equal."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


MEASURES: Final[Mapping[str, Callable[[Scene, System, int], Values]]] = {
    "programs": of_programs,
    "tokens": of_tokens,
    "kinds": of_kinds,
    "requests": of_requests,
    "deadlines": of_deadlines,
    "stages": of_stages,
    "tenants": of_tenants,
}
