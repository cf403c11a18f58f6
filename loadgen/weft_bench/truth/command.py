"""`weft bench truth`: checks the simulator against a real engine on this machine.

It runs one workload on the engine and in the simulator, with a cost model fitted to the engine. If
two cores exist, the engine has one, and the client, the gateway and the API server share the other.
Otherwise they take time from the engine, which the simulator does not model. The engine's steps are
measured while it is idle. Its slowdown under load is fitted on another workload with the first
order, so that the compared workload is not used for fitting.

A machine's speed drifts, so each measurement is repeated in rounds. Each round begins with another
order, and each order runs between two runs of the calibration. The result is the median over
rounds.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import httpx
import msgspec
from rich.progress import Progress

from weft_bench.cli.load import ReplayOptions
from weft_bench.cli.simulator import FitOptions, TruthOptions
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import OrderError, served, set_order
from weft_bench.drive.player import Gaps, Player
from weft_bench.replay.command import TOLD_ORDER, setup
from weft_bench.report.figures import Figure, finish
from weft_bench.report.rows import Column, show
from weft_bench.stack.cores import engines_apart
from weft_bench.stack.local import StackError, local_stack
from weft_bench.stats import mean, percentile
from weft_bench.truth import scene
from weft_bench.workloads.cutting import ReadyProgram
from weft_bench.workloads.schema import Part
from weft_bench.workloads.streams import poisson_arrivals, stream

if TYPE_CHECKING:
    from weft_bench.costs.presets import EngineShape

# Tolerance for the simulator's mean program latency, as a share of the real one.
CLOSE: Final = 0.15
_BLOCK_TOKENS: Final = 32
_NO_LIMIT_S: Final = 1e9
_FIT_ROUNDS: Final = 5
# Orders count as equal if their real means differ by less.
_APART: Final = 0.05
_HALVINGS: Final = 10
_COLUMNS: Final = (
    Column("real", "s", "real, here", ".3f"),
    Column("least", "s", "least round", ".3f"),
    Column("most", "s", "greatest round", ".3f"),
    Column("simulated", "s", "simulated", ".3f"),
    Column("ratio", "1", "simulated / real", ".3f"),
)

Scene = tuple[list[ReadyProgram], list[float]]
# Mean program latency of each order in seconds, for each round.
Rounds = list[dict[str, float]]


def run(options: TruthOptions) -> int:
    """Compare and report.

    Returns the exit status: 1 if the simulator deviates, 2 if the comparison is not possible.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    calibration, compared = _scenes(options)
    try:
        from weft_deploy.local.demo_model import ensure_demo_model

        from weft_bench.costs.step_probe import ProbeError

        with tempfile.TemporaryDirectory() as folder:
            model = scene.model(ensure_demo_model(), Path(folder))
            line, variables = setup(
                ReplayOptions(
                    policies=options.policies, replicas=1, slots=options.slots,
                    kv_blocks=options.kv_blocks, max_model_len=scene.CONTEXT,
                ),
                os.environ,
            )  # fmt: skip
            print("starting an engine and a gateway ...", flush=True)
            line = ["--model", str(model), *line, *scene.ARGUMENTS]
            with local_stack(line, variables) as base, engines_apart() as apart:
                told = "a separate core" if apart else "no separate core"
                print(f"the engine has {told}", flush=True)
                shape = _fitted(options, base)
                calibrated, real = asyncio.run(_play_rounds(options, base, calibration, compared))
    except (
        StackError,
        ProbeError,
        OrderError,
        httpx.HTTPError,
        OSError,
        ValueError,
        ImportError,
    ) as error:
        print(f"weft bench truth: {error}", file=sys.stderr)
        return 2
    simulated = _simulate_rounds(options, shape, calibrated, calibration, compared)
    return _report(options, real, simulated)


def fitted_slowdown(simulated: Callable[[float], float], real: float) -> float:
    """Return the factor on all costs that makes the simulated latency equal to the real one.

    The range is 1/2 to 16. simulated: returns the mean latency for a factor, and grows with it.
    """
    low, high = 0.5, 16.0
    for _ in range(_HALVINGS):
        middle = sqrt(low * high)
        if simulated(middle) < real:
            low = middle
        else:
            high = middle
    return sqrt(low * high)


def slower(shape: EngineShape, factor: float) -> EngineShape:
    """Return the same engine with all costs multiplied."""
    cost = {name: factor * value for name, value in asdict(shape.cost).items()}
    return replace(shape, cost=replace(shape.cost, **cost), call_s=factor * shape.call_s)


def in_turn(policies: Sequence[str], number: int) -> list[str]:
    """Return the orders in the sequence in which a round plays them."""
    first = number % len(policies)
    return [*policies[first:], *policies[:first]]


def medians(rounds: Rounds) -> dict[str, float]:
    """Return the median of each order over the rounds."""
    return {policy: percentile([found[policy] for found in rounds], 0.5) for policy in rounds[0]}


def _scenes(options: TruthOptions) -> tuple[Scene, Scene]:
    """Return the calibration scene and the compared scene."""
    found = []
    for seed in (options.seed + 1_000_003, options.seed):
        programs = scene.workload(seed, options.programs)
        draw = stream(seed, "arrivals")
        found.append((programs, poisson_arrivals(draw, options.rate, len(programs))))
    return found[0], found[1]


def same_order(real: Mapping[str, float], simulated: Mapping[str, float]) -> bool:
    """Return whether each two orders that differ by more than 5% on the engine rank the same way in
    the simulator.
    """
    names = list(real)
    return all(
        (real[a] - real[b]) * (simulated[a] - simulated[b]) > 0
        for i, a in enumerate(names)
        for b in names[:i]
        if abs(real[a] - real[b]) > _APART * min(real[a], real[b])
    )


def _fitted(options: TruthOptions, base: str) -> EngineShape:
    from weft_bench.costs.command import measure, show

    health = httpx.get(f"{base}/health", timeout=30.0, trust_env=False).json()
    engine = str(health["replicas"][0]["url"])
    asked = FitOptions(
        engine=engine,
        slots=options.slots,
        kv_blocks=options.kv_blocks,
        block_tokens=_BLOCK_TOKENS,
        context=scene.CONTEXT,
        rounds=_FIT_ROUNDS,
    )
    shape, measured = measure(asked)
    show(shape, measured)
    return shape


async def _play_rounds(
    options: TruthOptions, base: str, calibration: Scene, compared: Scene
) -> tuple[list[float], Rounds]:
    """Return the calibration's mean latencies before, between and after all plays, and those of the
    plays.
    """
    first = options.policies[0]
    real: Rounds = []
    async with Client(base) as client:
        model, _ = await served(client)
        with Progress(transient=True) as progress:
            plays = options.rounds * len(options.policies)
            bar = progress.add_task("played", total=2 * plays + 1)

            async def play(policy: str, scene: Scene) -> float:
                latency = await _play(policy, client, model, scene)
                progress.advance(bar)
                return latency

            calibrated = [await play(first, calibration)]
            for number in range(options.rounds):
                found = {}
                for policy in in_turn(options.policies, number):
                    found[policy] = await play(policy, compared)
                    calibrated.append(await play(first, calibration))
                real.append(found)
    return calibrated, real


async def _play(policy: str, client: Client, model: str, scene: Scene) -> float:
    """Play programs with an order and an empty cache. Returns their mean latency in seconds."""
    await set_order(client, policy, reset_cache=True)
    gaps, told = Gaps(1.0, _NO_LIMIT_S), policy == TOLD_ORDER
    player = Player(client, model, uuid4().hex[:8], gaps, tell_work=told)
    played = await player.play(*scene, lambda: None)
    errors = [error for program in played.programs for error in program.errors]
    if errors:
        raise ValueError(f"policy {policy}: {errors[0]}")
    return mean([program.response_s for program in played.programs])


def _simulate_rounds(
    options: TruthOptions,
    shape: EngineShape,
    calibrated: Sequence[float],
    calibration: Scene,
    compared: Scene,
) -> Rounds:
    """Simulate the same rounds.

    Each order runs at the speed of the calibrations before and after it.
    """
    first = options.policies[0]
    slowdown = [
        fitted_slowdown(
            lambda factor: _simulate(first, slower(shape, factor), calibration), latency
        )
        for latency in calibrated
    ]
    told = ", ".join(f"{factor:.2f}" for factor in slowdown)
    print(f"slowdown under load: {told}")
    if max(slowdown) > (1 + CLOSE) * min(slowdown):
        print("the machine's speed drifted: this comparison is less reliable")
    around = pairwise(slowdown)
    found: Rounds = []
    for number in range(options.rounds):
        engines = {
            policy: slower(shape, sqrt(before * after))
            for policy, (before, after) in zip(
                in_turn(options.policies, number), around, strict=False
            )
        }
        found.append({name: _simulate(name, engine, compared) for name, engine in engines.items()})
    return found


def _simulate(policy: str, shape: EngineShape, scene: Scene) -> float:
    """Return the mean program latency in the simulator in seconds."""
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.world import Setup, simulate

    orders = {"first_quantum_s": ReplayOptions().first_quantum_s, "experiments": True}
    programs, arrivals = scene
    # The gateway does not tag prompts of token ids.
    plain = [_untagged(program) for program in programs]
    played = simulate(plain, arrivals, Setup([shape], EngineSettings(policy, orders)))
    return mean([program.response_s for program in played.programs])


def _untagged(program: ReadyProgram) -> ReadyProgram:
    calls = []
    for ready in program.calls:
        parts = tuple(Part(part.name, part.tokens) for part in ready.call.parts)
        call = msgspec.structs.replace(ready.call, parts=parts)
        calls.append(replace(ready, call=call))
    return replace(program, calls=tuple(calls))


def _report(options: TruthOptions, real_rounds: Rounds, simulated_rounds: Rounds) -> int:
    real, simulated = medians(real_rounds), medians(simulated_rounds)
    values = {}
    for policy in options.policies:
        seen = [found[policy] for found in real_rounds]
        values[(policy,)] = {
            "real": real[policy],
            "least": min(seen),
            "most": max(seen),
            "simulated": simulated[policy],
            "ratio": simulated[policy] / real[policy],
        }
    title = f"mean program latency, s: medians of {len(real_rounds)} rounds"
    show(title, ("order",), values, _COLUMNS)
    figures = [
        figure
        for (policy,), row in values.items()
        for figure in (
            Figure(f"real/{policy}/response_mean", row["real"], "s"),
            Figure(f"simulated/{policy}/response_mean", row["simulated"], "s"),
            Figure(f"simulated_over_real/{policy}", row["ratio"], "1"),
        )
    ]
    far = [p for p in options.policies if abs(simulated[p] / real[p] - 1) > CLOSE]
    ordered = same_order(real, simulated)
    print(f"within {CLOSE:.0%}: {'no: ' + ', '.join(far) if far else 'yes'}")
    apart = max(real.values()) > (1 + _APART) * min(real.values())
    alike = "yes" if ordered else "no"
    print(f"same ranking of orders: {alike if apart else 'the real latencies do not differ'}")
    finish("truth", options.json_file, asdict(options), figures)
    return 1 if far or not ordered else 0
