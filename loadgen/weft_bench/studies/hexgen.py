"""Common parts of the experiments of HexGen-Flow: pools of unequal replicas, systems, SLO scales.

The SLO of a query is its execution time alone times a scale. Alone means on one reference replica,
with an empty cache and without other queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, Final

from weft_bench.stats import mean, percentile
from weft_bench.studies.cells import Cell, Values
from weft_bench.studies.simulating import System, play_programs
from weft_bench.workloads.arrivals import bursty_arrivals, stepped_arrivals
from weft_bench.workloads.streams import poisson_arrivals, stream
from weft_bench.workloads.text2sql import QUERIES, SINGLE

if TYPE_CHECKING:
    from weft_bench.virtual.clients import Client
    from weft_bench.virtual.records import ProgramRecord, Simulation
    from weft_bench.workloads.cutting import ReadyProgram

# HexGen-Flow, section 5.1: four replicas of four GPUs each.
POOLS: Final[Mapping[str, str]] = {
    "hetero-1": "hexgen-a100,hexgen-a100,hexgen-a6000,hexgen-a6000",
    "hetero-2": "hexgen-a100,hexgen-a100,hexgen-l40,hexgen-a6000",
    "homo": "hexgen-a100",
    # Another model, without a fit.
    "qwen-1": "32b-a100,32b-a100,32b-a6000,32b-a6000",
    # That of the emulated engines in docs/results/peers.md.
    "8b": "8b-a100,8b-a100,8b-l40,8b-l40",
}
_REPLICAS: Final = 4
# Ours, and the paper's system.
OURS: Final = "flow"
REPRODUCTION: Final = "hexgen"
# The rivals of the paper place calls in turn, except Ray. weft is the default order and placing.
SYSTEMS: Final[Mapping[str, System]] = {
    "vllm": System("fcfs", balancer="round_robin"),
    "vtc": System("vtc", balancer="round_robin"),
    "qlm": System("qlm", balancer="round_robin"),
    "llf": System("llf", balancer="round_robin"),
    "ray": System("fcfs", balancer="power_of_two"),
    REPRODUCTION: System("urgency", balancer="work"),
    OURS: System("slack", balancer="soonest", tags=True),
    "weft": System("resident", balancer="locality", tags=True),
}
# The weight of speed in the paper's system is the best of Figure 10: without a prefix cache this
# one, and with a cache the gateway's default.
_UNCACHED_ALPHA: Final = 0.1
# The rivals that the paper measured.
PAPERS: Final = ("vllm", "vtc", "qlm", "llf", "ray")
# The systems of scenes beside the main ones: the search of each of the other two takes several
# plays.
FEWER: Final = tuple(name for name in SYSTEMS if name not in ("qlm", "llf"))
# Orders and balancers that read deadlines.
_READ_DEADLINES: Final = frozenset({"urgency", "qlm", "llf", "slack", "soonest"})
# Queries before the measured ones. Every system starts with a warm cache and learned costs.
_EARLIER: Final = 20
_EARLIER_GAP_S: Final = 30.0
# The measured queries begin a pause after the last earlier one.
_BEGIN_S: Final = (_EARLIER - 1) * _EARLIER_GAP_S + 300.0
ATTAINED: Final = 0.95
# Constants of Weft were fixed with other seeds; the paper's seeds are 0, 1 and 2.
FIRST_SEED: Final = 100
# Seconds alone on the reference between two queries.
_APART_S: Final = 10_000.0
# The least factor between two scales while none is known that suffices.
_WIDER: Final = 1.25
_ROUNDING: Final = 1 + 1e-9
# A burst keeps the pool busy until this share of its queries has ended.
_BUSY: Final = 0.8


@dataclass(frozen=True, slots=True)
class Scene:
    """Queries and their pool.

    slots: calls at once on each replica, 0 for those of the preset. rate: queries a second. load:
    in place of a rate, relative to the capacity of the pool; only queries in the middle of the
    arrivals count. shift: factors on the rate in equal parts of the
    queries' time. bursts: arrivals with a coefficient of variation of 13. cache: whether replicas
    have a prefix cache.
    """

    trace: str
    pool: str = "hetero-1"
    queries: int = 100
    rate: float = 0.0
    load: float = 0.0
    cache: bool = True
    shift: str = ""
    bursts: bool = False
    slots: int = 0

    @property
    def programs(self) -> int:
        """Queries and the single calls beside them."""
        return round(self.queries / QUERIES.get(self.trace, 1.0))


def system_in(scene: Scene, name: str, **other: Any) -> System:
    """Return a system of `SYSTEMS` in a scene. other: fields to override."""
    found = replace(SYSTEMS[name], prefix_cache=scene.cache, **other)
    if name == REPRODUCTION and not scene.cache and found.alpha < 0:
        return replace(found, alpha=_UNCACHED_ALPHA)
    return found


def measure(cell: Cell) -> Values:
    """Return the figures of a cell.

    Its settings are those of a `Scene`, a `system` of `SYSTEMS`, fields of `System` to override,
    and a `scale`; without one, the least scale is searched that 95% of the queries attain. Raises
    the errors of `play_programs`.
    """
    settings: dict[str, Any] = dict(cell.settings)
    name = str(settings.pop("system"))
    other = {one.name: settings.pop(one.name) for one in fields(System) if one.name in settings}
    told = float(settings.pop("scale", 0.0))
    scene = Scene(**settings)
    played = Played(scene, system_in(scene, name, **other), FIRST_SEED + cell.seed)
    scale = told or played.least_scale()
    return {**played.figures(scale), "p95_scale": scale}


class Played:
    """Plays of a scene by one system, by the scale that its deadlines have. client: by the place of
    a query among all, its client and the factor on the deadline that this client states.
    """

    def __init__(
        self,
        scene: Scene,
        system: System,
        seed: int,
        client: Callable[[int], tuple[Client, float]] | None = None,
    ) -> None:
        self._scene, self._system, self._seed = scene, system, seed
        self._reads = bool({system.order, system.balancer} & _READ_DEADLINES)
        self._found: dict[float, Simulation] = {}
        self.alone = alone(scene.trace, _reference(scene.pool), seed, _EARLIER + scene.programs)
        self.clients: dict[str, Client] = {}
        self._factors: dict[str, float] = {}
        if client is not None:
            for place, name in enumerate(self.alone):
                self.clients[name], self._factors[name] = client(place)

    def at(self, scale: float) -> Simulation:
        """Return the play with deadlines of this scale. Systems that do not read them have one."""
        key = scale if self._reads else 0.0
        if key not in self._found:
            programs = _programs(self._scene.trace, self._seed, _EARLIER + self._scene.programs)
            deadlines = {
                name: scale * self._factors.get(name, 1.0) * alone_s
                for name, alone_s in self.alone.items()
            }
            self._found[key] = play_programs(
                programs,
                _arrivals(self._scene, self._seed),
                _engines(self._scene.pool, self._scene.slots),
                self._system,
                self._seed,
                deadlines if self._reads else None,
                self.clients,
            )
        return self._found[key]

    def stages(self) -> dict[tuple[str, int], str]:
        """Return the stage of each call, by program and number."""
        programs = _programs(self._scene.trace, self._seed, _EARLIER + self._scene.programs)
        return {
            (program.id, number): call.call.parts[0].name
            for program in programs
            for number, call in enumerate(program.calls)
        }

    def counted(self, scale: float) -> list[ProgramRecord]:
        """Return the measured programs."""
        programs = list(self.at(scale).programs[_EARLIER:])
        if self._scene.load:
            quarter = len(programs) // 4
            return programs[quarter : len(programs) - quarter]
        return programs

    def slowdowns(self, scale: float, single: bool = False) -> list[float]:
        """Return the latency of each query over its time alone; single: of the single calls."""
        return [
            program.response_s / self.alone[program.id]
            for program in self.counted(scale)
            if program.id.endswith(SINGLE) is single
        ]

    def least_scale(self) -> float:
        """Return the least scale that 95% of the queries attain."""
        return least_scale(lambda scale: percentile(self.slowdowns(scale), ATTAINED))

    def figures(self, scale: float) -> Values:
        """Return the figures of the play with this scale.

        attained: share of queries within the scale. throughput: queries a second from the first
        arrival to the last end. goodput: of those within the scale. slowdown: mean. latency: mean,
        seconds. hit_rate: cached share of prompt tokens. fast: share of prompt tokens on the
        replicas of the first kind. single_p95: of single calls, the slowdown. Refused queries count
        as not attained, and in no slowdown or latency.
        """
        found, slowdowns = self.at(scale), self.slowdowns(scale)
        served = [one for one in slowdowns if one < inf]
        queries = [one for one in self.counted(scale) if not one.id.endswith(SINGLE)]
        counted = [one for one in queries if one.calls]
        begun, ended = min(one.arrival_s for one in queries), max(one.end_s for one in counted)
        names = {one.id for one in self.counted(scale)}
        calls = [call for call in found.calls if call.program in names]
        prompts = sum(call.prompt_tokens for call in calls)
        fast = _fast(self._scene.pool)
        on_fast = sum(call.prompt_tokens for call in calls if call.replica in fast)
        attained = sum(one <= scale for one in slowdowns) / len(slowdowns)
        values = {
            "attained": attained,
            "goodput": attained * len(queries) / (ended - begun),
            "throughput": len(counted) / (ended - begun),
            "slowdown": mean(served),
            "slowdown_p95": percentile(served, ATTAINED),
            "latency": mean([one.response_s for one in counted]),
            "latency_p95": percentile([one.response_s for one in counted], ATTAINED),
            "hit_rate": sum(call.cached_tokens for call in calls) / prompts,
            "fast": on_fast / prompts,
        }
        singles = self.slowdowns(scale, single=True)
        return {**values, "single_p95": percentile(singles, ATTAINED)} if singles else values


def least_scale(slowdown: Callable[[float], float], precision: float = 1.03) -> float:
    """Return the least scale that is at least the slowdown which results from it.

    slowdown: of 95% of the queries, if their deadlines have this scale. The result is at most
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


def _reference(pool: str) -> str:
    return POOLS[pool].partition(",")[0]


def _engines(pool: str, slots: int = 0) -> list[Any]:
    from weft_engine.emulated.engines import shapes

    return shapes(POOLS[pool], _REPLICAS, slots)


def _fast(pool: str) -> frozenset[str]:
    names = POOLS[pool].split(",")
    count = _REPLICAS if len(set(names)) == 1 else names.count(names[0])
    return frozenset(f"replica-{number}" for number in range(count))


@lru_cache(maxsize=4)
def _programs(trace: str, seed: int, count: int) -> Sequence[ReadyProgram]:
    from weft_bench.virtual.workload import load

    return load(trace, seed, count, _engines("homo")[0].context)


@lru_cache(maxsize=16)
def alone(trace: str, preset: str, seed: int, count: int) -> Mapping[str, float]:
    """Return the seconds of each query alone on one replica with this preset, without a cache."""
    from weft_engine.emulated.engines import shapes

    programs = _programs(trace, seed, count)
    arrivals = [number * _APART_S for number in range(len(programs))]
    system = System("fcfs", prefix_cache=False, balancer="round_robin")
    found = play_programs(programs, arrivals, shapes(preset, 1), system, seed)
    return {program.id: program.response_s for program in found.programs}


def _rate(scene: Scene, seed: int) -> float:
    """Return the programs a second, without the factors of a shift."""
    rate = scene.rate or scene.load * _capacity(replace(scene, load=0.0), seed)
    return rate / QUERIES.get(scene.trace, 1.0)


def parts(scene: Scene, seed: int) -> list[float]:
    """Return the instants at which the parts of a scene with a shift begin, and the end of the last
    one. All parts take equally long. Seconds, as `ProgramRecord.arrival_s`.
    """
    factors = [float(factor) for factor in scene.shift.split(",")]
    part_s = scene.programs / sum(_rate(scene, seed) * factor for factor in factors)
    return [_BEGIN_S + number * part_s for number in range(len(factors) + 1)]


def _arrivals(scene: Scene, seed: int) -> list[float]:
    earlier = [number * _EARLIER_GAP_S for number in range(_EARLIER)]
    rate = _rate(scene, seed)
    rng, count = stream(seed, "arrivals"), scene.programs
    if scene.shift:
        begins = parts(scene, seed)
        factors = [float(factor) for factor in scene.shift.split(",")]
        part_s = begins[1] - begins[0]
        times = stepped_arrivals(rng, rate, count, [(part_s, factor) for factor in factors])
    elif scene.bursts:
        times = bursty_arrivals(rng, rate, count)
    else:
        times = poisson_arrivals(rng, rate, count)
    return [*earlier, *(_BEGIN_S + time for time in times)]


@lru_cache(maxsize=16)
def _capacity(scene: Scene, seed: int) -> float:
    """Return the queries a second that the pool completes in a burst, with calls in the order of
    arrival on the least used replica.
    """
    at_once = replace(scene, rate=1e6, shift="", bursts=False)
    system = System("fcfs", prefix_cache=scene.cache, balancer="least_used")
    played = Played(at_once, system, seed)
    found = [one for one in played.counted(1.0) if not one.id.endswith(SINGLE)]
    begun = min(one.arrival_s for one in found)
    ended = int(_BUSY * len(found))
    return ended / (sorted(one.end_s for one in found)[ended - 1] - begun)
