"""`weft bench truth`: is the simulator true to life? One workload on a real engine on this machine
and in the simulator with a cost model fitted to that engine.

The costs of steps are measured on the idle engine. While programs are played, the client, the
gateway and the engine's API server share the cores with the engine, and all of it is slower: by how
much is fitted on another workload, played under the first order before and after each order. What
is compared was not used for fitting; and where these plays differ, the machine was not steady.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import httpx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from loadgen.fit import ReadyProgram, fit
from loadgen.local_stack import StackError, local_stack
from loadgen.player import Gaps, Player
from loadgen.replay_command import ReplayOptions, setup
from loadgen.report.figures import Figure, machine, write_json
from loadgen.schema import Part, TraceCall, TraceProgram
from loadgen.stats import mean
from loadgen.streams import poisson_arrivals, stream

if TYPE_CHECKING:
    from loadgen.sim.presets import EngineShape

# Mean program latency of the simulator may be off by so much of the real one.
CLOSE: Final = 0.15
_CONTEXT: Final = 4096
_CALL_S: Final = 1800.0
_BLOCK_TOKENS: Final = 32
_NO_LIMIT_S: Final = 1e9
# Orders whose real means differ by less are not told apart by one play.
_APART: Final = 0.05
_HALVINGS: Final = 10


@dataclass(frozen=True, slots=True)
class TruthOptions:
    """Options of the command; see `weft bench truth --help`."""

    policies: tuple[str, ...] = ("fcfs", "plas")
    programs: int = 40
    rate: float = 5.0
    slots: int = 2
    kv_blocks: int = 400
    seed: int = 0
    rounds: int = 5
    json_file: str = ""


def run(options: TruthOptions) -> int:
    """Compare and report. Returns the exit status: 1 where the simulator is not true to life, 2
    where it cannot be told."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    calibration, compared = _scenes(options)
    try:
        from loadgen.step_probe import ProbeError

        line, variables = setup(
            ReplayOptions(
                policies=options.policies, replicas=1, slots=options.slots,
                kv_blocks=options.kv_blocks, max_model_len=_CONTEXT,
            ),
            os.environ,
        )  # fmt: skip
        print("starting an engine and a gateway ...", flush=True)
        with local_stack(line, variables) as base:
            shape = _fitted(options, base)
            first = options.policies[:1]
            # Each order between two plays of the calibration: a machine's speed drifts.
            calibrated = [asyncio.run(_play(first, base, *calibration))[first[0]]]
            real: dict[str, float] = {}
            for policy in options.policies:
                real |= asyncio.run(_play((policy,), base, *compared))
                calibrated.append(asyncio.run(_play(first, base, *calibration))[first[0]])
    except (StackError, ProbeError, httpx.HTTPError, ValueError, ImportError) as error:
        print(f"weft bench truth: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    slowdown = [
        fitted_slowdown(
            lambda factor: _simulate(first, slower(shape, factor), *calibration)[first[0]], latency
        )
        for latency in calibrated
    ]
    told = ", ".join(f"{factor:.2f}" for factor in slowdown)
    print(f"while programs are played, slower by {told} before, between and after the orders")
    if max(slowdown) > (1 + CLOSE) * min(slowdown):
        print("the machine was not steady: this comparison tells little")
    simulated: dict[str, float] = {}
    for policy, before, after in zip(options.policies, slowdown, slowdown[1:], strict=False):
        engine = slower(shape, sqrt(before * after))
        simulated |= _simulate((policy,), engine, *compared)
    return _report(options, real, simulated)


def workload(seed: int, count: int) -> list[ReadyProgram]:
    """Dialogues with tools, sized for the demo model: exact lengths, as token ids."""
    found = []
    for number in range(count):
        draw = stream(seed, f"truth/{number}")
        parts: tuple[Part, ...] = (Part("system", 256, "system"),)
        calls = []
        for turn in range(1 + min(11, int(draw.expovariate(1 / 4)))):
            asked = 16 + min(160, int(draw.expovariate(1 / 48)))
            parts += (Part(f"truth-{number}/asked/{turn}", asked, "tool"),)
            answer = 8 + min(120, int(draw.expovariate(1 / 40)))
            gap_s = min(2.0, draw.expovariate(1 / 0.25))
            calls.append(TraceCall(parts=parts, output_tokens=answer, gap_s=gap_s))
            # What was recorded, not what this model has answered.
            parts += (Part(f"truth-{number}/recorded/{turn}", answer, "assistant"),)
        ready = fit(TraceProgram(f"truth-{number}", tuple(calls)), _CONTEXT, 1.0)
        if ready is not None:
            found.append(ready)
    return found


def fitted_slowdown(simulated: Callable[[float], float], real: float) -> float:
    """The factor on all costs with which the simulation takes as long as reality, from 1/2 to 16.
    simulated: mean latency with a factor, which grows with it."""
    low, high = 0.5, 16.0
    for _ in range(_HALVINGS):
        middle = sqrt(low * high)
        if simulated(middle) < real:
            low = middle
        else:
            high = middle
    return sqrt(low * high)


def slower(shape: EngineShape, factor: float) -> EngineShape:
    """The same engine with all costs multiplied."""
    cost = {name: factor * value for name, value in asdict(shape.cost).items()}
    return replace(shape, cost=replace(shape.cost, **cost), call_s=factor * shape.call_s)


def _scenes(
    options: TruthOptions,
) -> tuple[tuple[list[ReadyProgram], list[float]], tuple[list[ReadyProgram], list[float]]]:
    """What is played to calibrate, and what is compared."""
    found = []
    for seed in (options.seed + 1_000_003, options.seed):
        programs = workload(seed, options.programs)
        draw = stream(seed, "arrivals")
        found.append((programs, poisson_arrivals(draw, options.rate, len(programs))))
    return found[0], found[1]


def same_order(real: Mapping[str, float], simulated: Mapping[str, float]) -> bool:
    """Whether every two orders that differ in real by more than 5% differ alike when simulated."""
    names = list(real)
    return all(
        (real[a] - real[b]) * (simulated[a] - simulated[b]) > 0
        for i, a in enumerate(names)
        for b in names[:i]
        if abs(real[a] - real[b]) > _APART * min(real[a], real[b])
    )


def _fitted(options: TruthOptions, base: str) -> EngineShape:
    from loadgen.fit_command import FitOptions, measure, show

    health = httpx.get(f"{base}/health", timeout=30.0, trust_env=False).json()
    engine = str(health["replicas"][0]["url"])
    asked = FitOptions(
        engine=engine,
        slots=options.slots,
        kv_blocks=options.kv_blocks,
        block_tokens=_BLOCK_TOKENS,
        context=_CONTEXT,
        rounds=options.rounds,
    )
    shape, measured = measure(asked)
    show(shape, measured)
    return shape


async def _play(
    policies: Sequence[str], base: str, programs: Sequence[ReadyProgram], arrivals: Sequence[float]
) -> dict[str, float]:
    limits = httpx.Limits(max_connections=None)
    found = {}
    async with httpx.AsyncClient(timeout=_CALL_S, limits=limits, trust_env=False) as client:
        card = (await client.get(f"{base}/v1/models")).json()["data"][0]
        with Progress(transient=True) as progress:
            for policy in policies:
                body = {"policy": policy, "reset_cache": True}
                answer = await client.post(f"{base}/weft/policy", json=body)
                if not answer.raise_for_status().json()["applied"]:
                    raise ValueError(f"policy {policy}: {answer.text[:300]}")
                bar = progress.add_task(policy, total=sum(len(p.calls) for p in programs))
                gaps = Gaps(1.0, _NO_LIMIT_S)
                player = Player(
                    base, str(card["id"]), client, uuid4().hex[:8], gaps,
                    tell_work=policy == "srpt",
                )  # fmt: skip
                play = await player.play(programs, arrivals, lambda b=bar: progress.advance(b))  # type: ignore[misc]
                errors = [e for program in play.programs for e in program.errors]
                if errors:
                    raise ValueError(f"policy {policy}: {errors[0]}")
                found[policy] = mean([program.response_s for program in play.programs])
    return found


def _simulate(
    policies: Sequence[str],
    shape: EngineShape,
    programs: Sequence[ReadyProgram],
    arrivals: Sequence[float],
) -> dict[str, float]:
    from loadgen.sim.engine import EngineSettings
    from loadgen.sim.world import Setup, simulate

    orders = {"first_quantum_s": ReplayOptions().first_quantum_s, "experiments": True}
    found = {}
    for policy in policies:
        # The gateway tags nothing of prompts that come as token ids.
        plain = [_untagged(program) for program in programs]
        setup = Setup([shape], EngineSettings(policy, orders))
        played = simulate(plain, arrivals, setup)
        found[policy] = mean([program.response_s for program in played.programs])
    return found


def _untagged(program: ReadyProgram) -> ReadyProgram:
    calls = []
    for ready in program.calls:
        parts = tuple(replace(part, kind="") for part in ready.call.parts)
        calls.append(replace(ready, call=replace(ready.call, parts=parts)))
    return replace(program, calls=tuple(calls))


def _report(
    options: TruthOptions, real: Mapping[str, float], simulated: Mapping[str, float]
) -> int:
    table = Table(title="mean program latency, s", title_justify="left")
    for heading in ("order", "real, on this machine", "simulated", "simulated / real"):
        table.add_column(heading, justify="left" if heading == "order" else "right")
    figures = []
    for policy in options.policies:
        ratio = simulated[policy] / real[policy]
        table.add_row(policy, f"{real[policy]:.3f}", f"{simulated[policy]:.3f}", f"{ratio:.3f}")
        figures += [
            Figure(f"real/{policy}/response_mean", real[policy], "s"),
            Figure(f"simulated/{policy}/response_mean", simulated[policy], "s"),
            Figure(f"simulated_over_real/{policy}", ratio, "1"),
        ]
    Console().print(table)
    far = [p for p in options.policies if abs(simulated[p] / real[p] - 1) > CLOSE]
    ordered = same_order(real, simulated)
    print(f"within {CLOSE:.0%}: {'no: ' + ', '.join(far) if far else 'yes'}")
    apart = max(real.values()) > (1 + _APART) * min(real.values())
    alike = "yes" if ordered else "no"
    print(f"the orders stand alike: {alike if apart else 'they do not differ in real'}")
    print(machine())
    if options.json_file:
        configuration: dict[str, Any] = asdict(options)
        write_json(Path(options.json_file), "weft bench truth", configuration, figures)
    return 1 if far or not ordered else 0
