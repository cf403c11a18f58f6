"""`weft bench workflows`: batch workflows by `weft run`, by LangGraph and by Algorithm 1."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from math import log
from pathlib import Path
from typing import Any, Final

import httpx

from weft_bench.cli.parts import GROUPED, SHUFFLED, WorkflowsOptions
from weft_bench.mapred.plays import Played, PlayError, Servers, play
from weft_bench.mapred.workloads import (
    COMPUTED,
    IN_TURN,
    OURS,
    SECONDS,
    SYSTEMS,
    WORKLOADS,
    Rows,
)
from weft_bench.report.figures import refuse
from weft_bench.report.page import conclude
from weft_bench.stack.local import StackError, stack_at
from weft_bench.studies.cells import Estimate, estimate, geometric
from weft_bench.studies.experiment import Goal

_LATE: Final = 0.01
_FIGURES: Final = {SECONDS: SECONDS, COMPUTED: "computed prompt tokens"}
LEAST: Final = "each block once"
_NO_GOALS: Final = "no goal of this project is for this workload on these engines"
_NUMBERS: Final = {2: "two", 4: "four"}
_COLUMNS: Final = (
    "rows", "system", "seconds", "weft run over it", "computed prompt tokens",
    "weft run over it", "cached", "calls", "busy", "late",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One play. order: of the rows. least: prompt tokens that any system computes, 0 if unknown."""

    order: str
    seed: int
    system: str
    played: Played
    least: int = 0


def run(options: WorkflowsOptions) -> int:
    """Play and report. Returns the exit status: 1 if a goal is missed, 2 for invalid input."""
    workload = WORKLOADS[options.workload]
    try:
        inputs = {
            (order, seed): workload.rows(options, order, seed)
            for seed in range(options.first_seed, options.first_seed + options.seeds)
            for order in options.rows
        }
        with (
            stack_at(options.base_url, lambda: (stack_options(options), {})) as base,
            tempfile.TemporaryDirectory() as work,
        ):
            cells = _plays(options, Servers.at(base), inputs, Path(work))
    except (StackError, PlayError, OSError, ValueError, httpx.HTTPError) as error:
        return refuse("workflows", error)
    except KeyboardInterrupt:
        return 130
    shown = [
        {
            **asdict(one.played), "order": one.order, "seed": one.seed, "system": one.system,
            "least": one.least,
        }
        for one in cells
    ]  # fmt: skip
    for cell in shown:
        # Equal digests are equal answers.
        cell["answers"] = blake2b(json.dumps(cell["answers"]).encode(), digest_size=8).hexdigest()
    kind = "emulated" if options.emulated else "real"
    rows = len(next(iter(inputs.values())))
    count = _NUMBERS.get(options.replicas, str(options.replicas))
    all_goals = goals(cells, options)
    return conclude(
        command_of(options),
        f"{workload.title}, {rows} rows, {count} {kind} replicas",
        "emulated" if options.emulated else "real, CPU",
        [table(cells, options), rivals(cells)],
        shown,
        missed(cells, options),
        options.json_file,
        [str(goal) for goal in all_goals if goal.met] if all_goals else [_NO_GOALS],
    )


def stack_options(options: WorkflowsOptions) -> list[str]:
    """Return the options of `weft up`."""
    line = ["--replicas", str(options.replicas)]
    if options.emulated:
        line += ["--emulated", "--preset", options.preset, "--dilate", f"{options.dilate:g}"]
    line += ["--", "--max-num-seqs", str(options.slots)]
    return [*line, "--num-gpu-blocks-override", str(options.kv_blocks)]


def command_of(options: WorkflowsOptions) -> str:
    """Return the command line that repeats this run, with DATA for the data folder."""
    words = [f"weft bench workflows --data DATA --workload {options.workload}"]
    words.append(f"--engines {options.engines} --replicas {options.replicas}")
    if options.emulated:
        words.append(f"--preset {options.preset} --dilate {options.dilate:g}")
    words.append(f"--rows {','.join(options.rows)}")
    names = ("contexts", "tokens", "slots", "kv_blocks", "first_seed", "seeds")
    words += [f"--{name.replace('_', '-')} {getattr(options, name)}" for name in names]
    return " ".join(words)


def _plays(
    options: WorkflowsOptions,
    servers: Servers,
    inputs: Mapping[tuple[str, int], Rows],
    work: Path,
) -> list[Cell]:
    """Play all systems on each input. Each input begins with another system."""
    found = []
    workload = WORKLOADS[options.workload]
    everything = [row for rows in inputs.values() for row in rows]
    databases = workload.databases(options, everything, work)
    # The first calls of an engine are slower, and it does not know yet whether programs return.
    first = workload.task(options, servers, next(iter(inputs.values()))[:6], databases)
    for name in workload.systems:
        play(SYSTEMS[name], servers, first, work)
    for number, ((order, seed), given) in enumerate(inputs.items()):
        task = workload.task(options, servers, given, databases)
        least = workload.least(servers, given)
        turn = number % len(workload.systems)
        for name in workload.systems[turn:] + workload.systems[:turn]:
            played = play(SYSTEMS[name], servers, task, work)
            if options.emulated:
                played = replace(played, seconds=played.seconds / options.dilate)
            found.append(Cell(order, seed, name, played, least))
            print(
                f"{order}, seed {seed}, {name}: {played.seconds:.1f} s, "
                f"{played.computed:,} of {played.prompt:,} prompt tokens computed, "
                f"{played.calls} calls, {played.late:.1%} late",
                flush=True,
            )
    return found


def _series(cells: Sequence[Cell], order: str, system: str, name: str) -> dict[int, float]:
    """Return a figure of a system by seed."""
    return {
        one.seed: float(getattr(one.played, name))
        for one in cells
        if one.order == order and one.system == system
    }


def over(cells: Sequence[Cell], order: str, system: str, name: str) -> Estimate:
    """Return our figure over that of a system, on the same rows: the geometric mean over seeds."""
    return _ratio(_series(cells, order, OURS, name), _series(cells, order, system, name))


def _ratio(one: Mapping[int, float], other: Mapping[int, float]) -> Estimate:
    """Return the geometric mean over the seeds that both have."""
    shared = [seed for seed in one if one[seed] > 0 and other.get(seed, 0.0) > 0]
    return geometric([log(one[seed] / other[seed]) for seed in shared])


def _least(cells: Sequence[Cell], order: str) -> dict[int, float]:
    """Return the least prompt tokens by seed, empty if they are unknown."""
    return {one.seed: float(one.least) for one in cells if one.order == order and one.least}


def _orders(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(one.order for one in cells))


def _systems(cells: Sequence[Cell]) -> list[str]:
    played = {one.system for one in cells}
    return [name for name in SYSTEMS if name in played]


def table(cells: Sequence[Cell], options: WorkflowsOptions) -> dict[str, Any]:
    """Return the table: means over seeds, and ratios seed by seed, with 95% intervals."""
    shown = []
    for order in _orders(cells):
        for system in _systems(cells):
            mine = {
                name: list(_series(cells, order, system, name).values())
                for name in (SECONDS, COMPUTED, "prompt", "cached", "calls", "busy", "late")
            }
            prompt = sum(mine["prompt"])
            ratios = [
                "" if system == OURS else str(over(cells, order, system, name))
                for name in (SECONDS, COMPUTED)
            ]
            shown.append(
                [
                    order, system, str(estimate(mine[SECONDS])), ratios[0],
                    str(estimate(mine[COMPUTED])), ratios[1],
                    f"{sum(mine['cached']) / prompt:.0%}" if prompt else "",
                    str(estimate(mine["calls"])),
                    str(estimate(mine["busy"])) if options.emulated else "-",
                    f"{max(mine['late']):.1%}" if options.emulated else "-",
                ]
            )  # fmt: skip
        if least := _least(cells, order):
            ratio = _ratio(_series(cells, order, OURS, COMPUTED), least)
            tokens = str(estimate(list(least.values())))
            shown.append([order, LEAST, "", "", tokens, str(ratio), *[""] * 4])
    alike = len({(one.order, one.seed, one.played.answers) for one in cells}) == len(
        {(one.order, one.seed) for one in cells}
    )
    seeds = f"{options.seeds} seed" + ("s" if options.seeds > 1 else "")
    return {
        "title": f"{WORKLOADS[options.workload].about(options)}. Answers have {options.tokens} "
        f"tokens; {seeds}, means with 95% intervals. LangGraph runs `abatch` without a limit of "
        f"calls at once. `{GROUPED}`: the questions of a context are neighbours; `{SHUFFLED}`: "
        f"rows in random order. Times do not include the start of a process and its imports, those "
        f"of `{OURS}` include its planning. `busy`: seconds of the steps of all emulated devices. "
        f"`late`: the greatest share of a play. `{LEAST}`: a lower bound of the computed tokens of "
        "any order of the calls, without the answers in the editors' prompts. "
        + ("All systems have the same answers" if alike else "Answers differ"),
        "labels": 2,
        "columns": list(_COLUMNS),
        "rows": shown,
    }


def rivals(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the table of ratios between rivals, and of the least tokens over those of each."""
    shown = []
    for order in _orders(cells):
        direct = {name: _series(cells, order, IN_TURN, name) for name in (SECONDS, COMPUTED)}
        for system in _systems(cells):
            if system == OURS:
                continue
            mine = {name: _series(cells, order, system, name) for name in (SECONDS, COMPUTED)}
            ratios = [
                "" if system == IN_TURN else str(_ratio(mine[name], direct[name]))
                for name in (SECONDS, COMPUTED)
            ]
            least = _least(cells, order)
            bound = str(_ratio(least, mine[COMPUTED])) if least else ""
            shown.append([order, system, *ratios, bound])
    return {
        "title": f"Rivals: seconds and computed prompt tokens over those of {IN_TURN}, and the "
        f"tokens of `{LEAST}` over those of the system",
        "labels": 2,
        "columns": ["rows", "system", "seconds", "tokens", LEAST],
        "rows": shown,
    }


def missed(cells: Sequence[Cell], options: WorkflowsOptions) -> list[str]:
    """Return the missed goals, plays with other answers, and plays on a machine that was too
    slow.
    """
    found = []
    answers: dict[tuple[str, int], tuple[str, ...]] = {}
    for one in cells:
        same = answers.setdefault((one.order, one.seed), one.played.answers)
        of = f"{one.order}, seed {one.seed}, {one.system}"
        if one.played.answers != same:
            unlike = sum(a != b for a, b in zip(one.played.answers, same, strict=True))
            found.append(f"{of}: {unlike} of {len(same)} answers differ")
        if one.played.late > _LATE:
            found.append(f"{of}: the machine was too slow: {one.played.late:.1%} late")
    return found + [
        str(goal).removeprefix("missed: ") for goal in goals(cells, options) if not goal.met
    ]


def goals(cells: Sequence[Cell], options: WorkflowsOptions) -> list[Goal]:
    """Return the goals of the workload."""
    return [
        Goal(f"{order}, over {system}: {_FIGURES[name]}", over(cells, order, system, name), limit)
        for order in _orders(cells)
        for system, limits in WORKLOADS[options.workload].goals[options.emulated].items()
        for name, limit in limits.items()
    ]
