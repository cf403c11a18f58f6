"""Plays scenes in virtual time, also with deadlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, sqrt
from typing import TYPE_CHECKING, Final

import msgspec

from weft_bench.stats import percentile
from weft_bench.studies.study import Scene, System
from weft_bench.virtual.clients import Client, Clients
from weft_bench.virtual.overlap import Overlap
from weft_bench.workloads.arrivals import stepped_arrivals
from weft_bench.workloads.streams import poisson_arrivals, stream

if TYPE_CHECKING:
    from weft_engine.emulated.presets import EngineShape

    from weft_bench.virtual.records import ProgramRecord, Simulation
    from weft_bench.workloads.cutting import ReadyProgram

# Four replicas of four GPUs each (HexGen-Flow, section 5.1); the last has another model.
POOLS: Final[Mapping[str, str]] = {
    "hetero-1": "hexgen-a100,hexgen-a100,hexgen-a6000,hexgen-a6000",
    "hetero-2": "hexgen-a100,hexgen-a100,hexgen-l40,hexgen-a6000",
    "homo": "hexgen-a100",
    "qwen-1": "32b-a100,32b-a100,32b-a6000,32b-a6000",
}
# Host memory for preempted calls of systems that swap, GiB.
_SWAP_GIB: Final = 32.0
ATTAINED: Final = 0.95
# Orders and balancers that read deadlines.
_READ_DEADLINES: Final = frozenset({"urgency", "qlm", "llf", "slack", "soonest"})
# Programs before the measured ones, so that every system starts with a warm cache and learned
# costs, the seconds between them, and the begin of the measured ones.
_EARLIER: Final = 20
_EARLIER_GAP_S: Final = 30.0
_BEGIN_S: Final = (_EARLIER - 1) * _EARLIER_GAP_S + 300.0
# Seconds between two programs that run alone.
_APART_S: Final = 10_000.0
# A burst keeps the engines busy until this share of its programs has ended.
_BUSY: Final = 0.8
# The least factor between two scales while none is known that suffices.
_WIDER: Final = 1.25
_ROUNDING: Final = 1 + 1e-9


def play(scene: Scene, system: System, seed: int, watched: bool = False) -> Simulation:
    """Run one simulation. watched: record when each token arrives.

    The same scene and seed give the same programs at the same times for every system. Raises the
    errors of `simulate` and `load`, and RuntimeError if an invariant fails, because such a run has
    no figures.
    """
    found = programs(scene, seed, scene.programs)
    arrivals = _arrivals(scene, seed, len(found))
    if not (scene.rate or scene.load):
        arrivals = [program.arrival_s or 0.0 for program in found]
    return _play(found, arrivals, _engines(scene), system, seed, watched=watched)


def programs(scene: Scene, seed: int, count: int) -> Sequence[ReadyProgram]:
    """Return a scene's programs, cut to the context of its engines."""
    context = min(engine.context for engine in _engines(scene))
    return _programs(scene.workload, seed, count, context)


@lru_cache(maxsize=4)
def _programs(workload: str, seed: int, count: int, context: int) -> Sequence[ReadyProgram]:
    from weft_bench.virtual.workload import load

    return load(workload, seed, count, context)


def _engines(scene: Scene) -> list[EngineShape]:
    from weft_engine.emulated.engines import shapes

    preset = POOLS.get(scene.preset, scene.preset)
    found = shapes(preset, scene.replicas, scene.slots, scene.kv_blocks)
    tokens = scene.step_tokens
    return [replace(one, step_tokens=tokens or one.step_tokens) for one in found]


def _arrivals(scene: Scene, seed: int, count: int) -> list[float]:
    rng, rate = stream(seed, "arrivals"), scene.rate or (scene.load and _capacity(scene, seed))
    if not rate:
        return [0.0] * count
    if not scene.shift:
        return poisson_arrivals(rng, rate, count)
    factors = [float(factor) for factor in scene.shift.split(",")]
    part_s = count / sum(rate * factor for factor in factors)
    return stepped_arrivals(rng, rate, count, [(part_s, factor) for factor in factors])


def _play(
    found: Sequence[ReadyProgram],
    arrivals: Sequence[float],
    engines: Sequence[EngineShape],
    system: System,
    seed: int,
    deadlines: Mapping[str, float] | None = None,
    clients: Mapping[str, Client] | None = None,
    watched: bool = False,
) -> Simulation:
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.workload import BYTES_PER_TOKEN
    from weft_bench.virtual.world import Setup, simulate

    settings = EngineSettings(
        policy=system.order,
        options=system.options,
        tags=system.tags,
        swap_gib=_SWAP_GIB if system.swap else 0.0,
        prefix_cache=system.prefix_cache,
        plugin=system.plugin,
    )
    overlap = Overlap(
        system.split, system.dispatch, system.tell_tags, system.retain_s, system.forget
    )
    setup = Setup(
        engines,
        settings,
        system.balancer,
        seed=seed,
        bytes_per_token=BYTES_PER_TOKEN,
        overlap=overlap,
        deadlines=deadlines or {},
        clients=Clients(clients or {}, system.shared),
        refuse=system.refuse,
        watched=watched,
    )
    if system.alpha >= 0:
        setup = replace(setup, alpha=system.alpha)
    played = simulate(found, arrivals, setup)
    if played.violations:
        raise RuntimeError(f"{system} {seed}: {'; '.join(played.violations[:3])}")
    return played


class DeadlinePlays:
    """Plays of a scene by one system, by the scale of its deadlines.

    The deadline of a program is its time alone on the first engine of the scene, with an empty
    cache, times the scale. client: by the place of a program among all, its client and the factor
    on the deadline that this client states.
    """

    def __init__(
        self,
        scene: Scene,
        system: System,
        seed: int,
        client: Callable[[int], tuple[Client, float]] | None = None,
    ) -> None:
        cached = system.prefix_cache and scene.cache
        self._scene, self._seed = scene, seed
        self._system = msgspec.structs.replace(system, prefix_cache=cached)
        self._reads = bool({system.order, system.balancer} & _READ_DEADLINES)
        self._found: dict[float, Simulation] = {}
        self.programs = programs(scene, seed, _EARLIER + scene.programs)
        self.alone = _alone(scene, seed)
        self.clients: dict[str, Client] = {}
        self._factors: dict[str, float] = {}
        if client is not None:
            for place, name in enumerate(self.alone):
                self.clients[name], self._factors[name] = client(place)

    def at(self, scale: float) -> Simulation:
        """Return the play with deadlines of this scale. Systems that do not read them have one."""
        key = scale if self._reads else 0.0
        if key not in self._found:
            deadlines = {
                name: scale * self._factors.get(name, 1.0) * alone_s
                for name, alone_s in self.alone.items()
            }
            earlier = [number * _EARLIER_GAP_S for number in range(_EARLIER)]
            times = _arrivals(self._scene, self._seed, len(self.programs) - _EARLIER)
            self._found[key] = _play(
                self.programs,
                [*earlier, *(_BEGIN_S + time for time in times)],
                _engines(self._scene),
                self._system,
                self._seed,
                deadlines if self._reads else None,
                self.clients,
            )
        return self._found[key]

    def counted(self, scale: float) -> list[ProgramRecord]:
        """Return the measured programs."""
        found = list(self.at(scale).programs[_EARLIER:])
        quarter = len(found) // 4 if self._scene.load else 0
        return found[quarter : len(found) - quarter]

    def least_scale(self, slowdowns: Callable[[float], Sequence[float]]) -> float:
        """Return the least scale that 95% of these slowdowns attain."""
        return least_scale(lambda scale: percentile(slowdowns(scale), ATTAINED))


def least_scale(slowdown: Callable[[float], float], precision: float = 1.03) -> float:
    """Return the least scale that is at least the slowdown which results from it.

    slowdown: of 95% of the programs, if their deadlines have this scale. The result is at most
    `precision` times a scale that is too small, or was not found smaller in twelve steps.
    """
    low, high, scale = 0.0, inf, 8.0
    for _ in range(12):
        found = slowdown(scale)
        if found <= scale:
            high = scale
            if found == scale:
                return scale
        else:
            low = scale
        if low and high / low <= precision * _ROUNDING:
            break
        if high == inf:
            # A slowdown that grows with the scale must not make the steps small.
            scale = max(found, _WIDER * low)
        elif low < found < high:
            # Neither must one that falls with it.
            scale = min(found, high / precision)
        else:
            scale = sqrt((low or 1.0) * high)
    return high


def fast(scene: Scene) -> frozenset[str]:
    """Return the replicas of the first kind."""
    kinds = [name.strip() for name in POOLS.get(scene.preset, scene.preset).split(",")]
    return frozenset(
        f"replica-{number}"
        for number in range(scene.replicas)
        if kinds[number % len(kinds)] == kinds[0]
    )


def _alone(scene: Scene, seed: int) -> Mapping[str, float]:
    """Return the seconds of each program alone on the first engine, without a cache."""
    preset = POOLS.get(scene.preset, scene.preset).partition(",")[0]
    alone = Scene(scene.workload, scene.programs, preset=preset)
    return _alone_on(alone, seed)


@lru_cache(maxsize=16)
def _alone_on(scene: Scene, seed: int) -> Mapping[str, float]:
    found = programs(scene, seed, _EARLIER + scene.programs)
    arrivals = [number * _APART_S for number in range(len(found))]
    system = System("fcfs", prefix_cache=False, balancer="round_robin")
    played = _play(found, arrivals, _engines(scene), system, seed)
    return {program.id: program.response_s for program in played.programs}


def _capacity(scene: Scene, seed: int) -> float:
    """Return the rate of a scene's load: a share of the programs a second that its engines complete
    in a burst, with calls in the order of arrival on the least used replica.
    """
    at_once = msgspec.structs.replace(scene, load=0.0, rate=1e6, shift="")
    return scene.load * _burst(at_once, seed)


@lru_cache(maxsize=16)
def _burst(scene: Scene, seed: int) -> float:
    plays = DeadlinePlays(scene, System("fcfs", balancer="least_used"), seed)
    found = plays.counted(1.0)
    ended = int(_BUSY * len(found))
    begun = min(one.arrival_s for one in found)
    return ended / (sorted(one.end_s for one in found)[ended - 1] - begun)
