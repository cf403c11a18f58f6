"""Plays of the curve in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from weft_engine.emulated.engines import shapes
from weft_engine.emulated.presets import EngineShape

from weft_bench.agents.figures import Call, figures
from weft_bench.agents.scene import BLOCK_TOKENS, BYTES_PER_TOKEN, Scene
from weft_bench.agents.systems import CLAIRVOYANT, ENDLESS, OURS, PAUSE, STICKY, STOCK
from weft_bench.studies.cells import Values
from weft_bench.virtual.closed_loop import CHAT, Loop
from weft_bench.virtual.records import Simulation

# Seconds between the first sessions.
SPREAD_S: Final = 0.5
# An endless cache has this many times the engine's.
_ENDLESS: Final = 32
# Calls in flight at a replica, over the sessions that fit it, above which sticky programs leave it.
# On two engines of `8b-h100` with twice what fits (seeds 900 and 901), thresholds from a quarter to
# infinity changed the mean by at most 2%; this one had the least.
_SATURATED: Final = 2.0


@dataclass(frozen=True, slots=True)
class System:
    """A system of the curve.

    about: one line for readers. order, tags, balancer: as in `EngineSettings` and `Setup`. gated,
    clairvoyant: as in `Setup`. endless: its cache holds everything.
    """

    about: str
    order: str = "fcfs"
    tags: bool = False
    balancer: str = "round_robin"
    gated: bool = False
    clairvoyant: bool = False
    endless: bool = False


def ours(order: str) -> System:
    """Return Weft with an order."""
    return System(f"Weft with the order `{order}`", order, tags=True, balancer="locality")


SYSTEMS: Final[Mapping[str, System]] = {
    OURS: ours(OURS),
    STOCK: System("stock vLLM behind round robin"),
    "program_fifo": ours("program_fifo"),
    STICKY: System(
        "our reading of llm-d's default: a program keeps its replica until more calls are in "
        "flight there than a calibrated threshold; stock vLLM",
        balancer="sticky_until_saturated",
    ),
    PAUSE: System(
        "our reading of vllm-router's program scheduling: programs are paused between calls above "
        "95% of the token capacity, and resumed below 80% or after 300 s; stock vLLM",
        gated=True,
    ),
    CLAIRVOYANT: replace(
        ours(OURS),
        about="a bound: the admission of `resident`, with the least remaining work first, which no "
        "gateway knows",
        clairvoyant=True,
    ),
    ENDLESS: replace(
        ours(OURS), about="a bound: `resident` with a cache that holds everything", endless=True
    ),
}


def systems(orders: Sequence[str]) -> dict[str, System]:
    """Return all systems by name, with further orders of Weft."""
    return {**{order: ours(order) for order in orders}, **SYSTEMS}


def engines(scene: Scene) -> list[EngineShape]:
    """Return the engines of a scene. Raises ValueError for an unknown preset."""
    found = shapes(scene.preset, scene.replicas, scene.slots)
    times = BLOCK_TOKENS // found[0].block_tokens
    return [
        replace(
            one,
            block_tokens=times * one.block_tokens,
            block_bytes=times * one.block_bytes,
            kv_blocks=scene.kv_blocks or one.kv_blocks // times,
            cost=replace(one.cost, swapped_block_s=times * one.cost.swapped_block_s),
        )
        for one in found
    ]


def play(
    scene: Scene,
    system: System,
    times: float,
    seed: int,
    *,
    fits: int = 0,
    host: float = 0.0,
    plugin: Mapping[str, Any] | None = None,
) -> Values:
    """Return the figures of a system with `times` as many sessions at once as fit the caches.

    fits: 0 to measure it. host: host memory for KV over the caches. plugin: further settings of the
    engines. The same scene and seed give the same sessions in the same order. Raises the errors of
    `simulate` and of `Scene.sessions`.
    """
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.world import Setup, simulate

    made = engines(scene)
    room = made[0].kv_blocks * made[0].block_tokens
    fits = fits or scene.fit(room, made[0].context)
    at = scene.point(times, fits)
    sessions = scene.sessions(seed, at.available, min(made[0].context, room), at.least)
    if system.endless:
        made = [replace(one, kv_blocks=_ENDLESS * one.kv_blocks) for one in made]
    setup = Setup(
        made,
        EngineSettings(
            system.order,
            tags=system.tags,
            plugin=plugin or {},
            host_blocks=round(host * made[0].kv_blocks),
        ),
        system.balancer,
        seed=seed,
        bytes_per_token=BYTES_PER_TOKEN,
        alpha=_SATURATED * fits / scene.replicas,
        loop=Loop(at.counted, scene.chats_s),
        gated=system.gated,
        clairvoyant=system.clairvoyant,
    )
    played = simulate(sessions, [SPREAD_S * number for number in range(at.at_once)], setup)
    return figures(
        calls_of(played),
        {one.id: (one.arrival_s, one.end_s) for one in played.programs if one.end_s >= 0},
        [one.id for one in sessions[: at.counted]],
        played.end_s,
    )


def calls_of(played: Simulation) -> list[Call]:
    """Return the answered calls."""
    return [
        Call(
            "" if one.program.startswith(CHAT) else one.program,
            one.arrival_s,
            one.first_token_s,
            one.end_s,
            one.prompt_tokens,
            one.cached_tokens,
            one.output_tokens,
            played.held_s.get((one.program, one.number), 0.0),
        )
        for one in played.calls
        if one.end_s >= 0
    ]
