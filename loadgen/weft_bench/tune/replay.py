"""Replays recorded programs with other values of alpha, in virtual time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_engine.emulated.cost_model import CostModel
from weft_engine.emulated.presets import BLOCK_TOKENS, EngineShape
from weft_gateway.engine.described import engine_costs, runs_plugin

from weft_bench.stats import percentile
from weft_bench.tune.journals import TuneError
from weft_bench.tune.recorded import Recorded

# HexGen-Flow, equation 10.
_ALPHAS: Final = tuple(step / 10 for step in range(11))
_TAIL: Final = 0.95


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of a replay. policy, options: of their order. tags: eviction by tags."""

    shapes: Sequence[EngineShape]
    policy: str
    options: Mapping[str, Any]
    tags: bool


def engines_of(replicas: Mapping[str, Any]) -> Engines:
    """Return the engines by `replicas` of `GET /weft/state`. Raises TuneError if one does not
    report its costs, or if their orders differ.
    """
    shapes, orders = [], []
    for name, found in sorted(replicas.items()):
        answer = found.get("answer")
        costs = engine_costs(answer) if runs_plugin(answer) else None
        if costs is None:
            raise TuneError(f"{name} reports no step costs: it needs Weft's plugin and some load")
        of, states = costs.steps, answer["engines"]
        cost = CostModel(
            of.step_s, of.weights_s, of.prefill_token_s, of.decode_s, of.context_token_s,
            prefill_pair_s=of.prefill_pair_s,
        )  # fmt: skip
        tokens = sum(state["step_tokens"] for state in states)
        blocks = costs.kv_tokens // BLOCK_TOKENS
        shapes.append(EngineShape(cost, int(of.together), tokens, blocks))
        orders += [(state["policy"], state["options"], bool(state.get("kv"))) for state in states]
    if not orders or any(one != orders[0] for one in orders):
        raise TuneError("the engines have different orders or options")
    return Engines(shapes, *orders[0])


def tails(
    programs: Sequence[Recorded], counted: Collection[str], engines: Engines, alpha: float
) -> dict[float, float]:
    """Return the P95 of the counted programs' latency by alpha, seconds: of the present one and of
    the candidates. Raises TuneError if a call fits no engine.
    """
    # They need vLLM.
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.replica import SimulationError
    from weft_bench.virtual.world import Setup, simulate

    settings = EngineSettings(engines.policy, engines.options, engines.tags)
    deadlines = {one.ready.id: one.deadline_s for one in programs if one.deadline_s}
    ready = [one.ready for one in programs]
    arrivals = [one.arrival_s - programs[0].arrival_s for one in programs]
    found = {}
    for candidate in dict.fromkeys((alpha, *_ALPHAS)):
        setup = Setup(engines.shapes, settings, "work", deadlines=deadlines, alpha=candidate)
        try:
            played = simulate(ready, arrivals, setup).programs
        except SimulationError as error:
            raise TuneError(str(error)) from None
        times = [program.response_s for program in played if program.id in counted]
        found[candidate] = percentile(times, _TAIL)
    return found


def best(found: Mapping[float, float], alpha: float) -> float:
    """Return the alpha with the least P95. alpha: the present one; of equal ones, the nearest."""
    return min(found, key=lambda one: (found[one], abs(one - alpha)))
