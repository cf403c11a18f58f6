"""Plays a scene in virtual time, with the settings of the emulated engine."""

from __future__ import annotations

from weft_engine.emulated.presets import EngineShape

from weft_bench.agreement.compare import Delay, Played
from weft_bench.agreement.scenes import Scene
from weft_bench.stats import mean
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.world import Setup, simulate


def play(
    scene: Scene, order: str, shape: EngineShape, swap_gib: float, delay: Delay, number: int
) -> Played:
    """Play a scene once. Raises SimulationError for a call that the engine cannot hold.

    number: of the play; each has other delays with the mean `delay`.
    """
    settings = EngineSettings(order, swap_gib=swap_gib, asynchronous=True)
    setup = Setup([shape], settings, seed=number, delay_s=delay.call_s, delay_token_s=delay.token_s)
    found = simulate(scene.programs, scene.arrivals, setup)
    calls = found.calls
    return Played(
        program_s=mean([program.response_s for program in found.programs]),
        call_s=mean([call.service_s + call.waiting_s for call in calls]),
        hit_rate=sum(c.cached_tokens for c in calls) / sum(c.prompt_tokens for c in calls),
        preemptions=sum(call.preemptions for call in calls),
        moved_blocks=sum(call.blocks_swapped_out + call.blocks_swapped_in for call in calls),
    )
