"""`weft bench workflows`: map-reduce over TAT-QA by `weft run` and by LangGraph."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx

from weft_bench.cli.parts import GROUPED, SHUFFLED, WorkflowsOptions
from weft_bench.mapred.plays import Play, Played, PlayError, Servers, langgraph, play, weft_run
from weft_bench.mapred.workload import EXPERTS, rows
from weft_bench.report.figures import refuse
from weft_bench.report.page import conclude
from weft_bench.stack.local import StackError, stack_at

OURS: Final = "weft run"
SYSTEMS: Final[Mapping[str, Play]] = {
    "LangGraph, replicas in turn": langgraph(direct=True),
    "LangGraph, Weft's gateway": langgraph(direct=False),
    OURS: weft_run,
}
# Goals of this project on real engines: over each of the others.
COMPUTED_GOAL: Final = 0.5
SECONDS_GOAL: Final = 0.75
_LATE: Final = 0.01
_COLUMNS: Final = (
    "rows", "system", "seconds", "weft run over it", "computed prompt tokens",
    "weft run over it", "cached", "calls",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One play. order: of the rows."""

    order: str
    seed: int
    system: str
    played: Played


def run(options: WorkflowsOptions) -> int:
    """Play and report. Returns the exit status: 1 if a goal is missed, 2 for invalid input."""
    try:
        inputs = {
            (order, seed): rows(
                Path(options.data), options.contexts, seed, shuffled=order == SHUFFLED
            )
            for order in options.rows
            for seed in range(options.first_seed, options.first_seed + options.seeds)
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
        {**asdict(one.played), "order": one.order, "seed": one.seed, "system": one.system}
        for one in cells
    ]
    for cell in shown:
        del cell["answers"]
    kind = "emulated" if options.emulated else "real"
    return conclude(
        command_of(options),
        f"Map-reduce over TAT-QA, two {kind} replicas",
        "emulated" if options.emulated else "real, CPU",
        [table(cells, options)],
        shown,
        missed(cells, goals=not options.emulated),
        options.json_file,
    )


def stack_options(options: WorkflowsOptions) -> list[str]:
    """Return the options of `weft up`."""
    line = ["--replicas", "2"]
    if options.emulated:
        line += ["--emulated", "--preset", options.preset, "--dilate", f"{options.dilate:g}"]
    line += ["--", "--max-num-seqs", str(options.slots)]
    return [*line, "--num-gpu-blocks-override", str(options.kv_blocks)]


def command_of(options: WorkflowsOptions) -> str:
    """Return the command line that repeats this run, with DATA for the data folder."""
    words = ["weft bench workflows --data DATA", f"--engines {options.engines}"]
    if options.emulated:
        words.append(f"--preset {options.preset} --dilate {options.dilate:g}")
    words.append(f"--rows {','.join(options.rows)}")
    names = ("contexts", "tokens", "slots", "kv_blocks", "first_seed", "seeds")
    words += [f"--{name.replace('_', '-')} {getattr(options, name)}" for name in names]
    return " ".join(words)


def _plays(
    options: WorkflowsOptions,
    servers: Servers,
    inputs: Mapping[tuple[str, int], Sequence[Mapping[str, str]]],
    work: Path,
) -> list[Cell]:
    """Play all systems on each input. Each input begins with another system."""
    found = []
    # The first calls of an engine are slower.
    play(weft_run, servers, next(iter(inputs.values()))[:6], options.tokens, work)
    for number, ((order, seed), given) in enumerate(inputs.items()):
        names = list(SYSTEMS)
        for name in names[number % 3 :] + names[: number % 3]:
            played = play(SYSTEMS[name], servers, given, options.tokens, work)
            if options.emulated:
                played = replace(played, seconds=played.seconds / options.dilate)
            found.append(Cell(order, seed, name, played))
            print(
                f"{order}, seed {seed}, {name}: {played.seconds:.1f} s, "
                f"{played.computed:,} of {played.prompt:,} prompt tokens computed",
                flush=True,
            )
    return found


def _sum(cells: Sequence[Cell], order: str, system: str, name: str) -> float:
    return sum(
        float(getattr(one.played, name))
        for one in cells
        if one.order == order and one.system == system
    )


def _over(cells: Sequence[Cell], order: str, system: str, name: str) -> float:
    """Return our figure over that of a system, on the same rows."""
    theirs = _sum(cells, order, system, name)
    return _sum(cells, order, OURS, name) / theirs if theirs else float("nan")


def _orders(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(one.order for one in cells))


def table(cells: Sequence[Cell], options: WorkflowsOptions) -> dict[str, Any]:
    """Return the table: sums over all seeds, and ratios of the sums."""
    shown = []
    for order in _orders(cells):
        for system in SYSTEMS:
            prompt = _sum(cells, order, system, "prompt")
            ours = system == OURS
            ratios = [
                "" if ours else f"{_over(cells, order, system, name):.3f}"
                for name in ("seconds", "computed")
            ]
            shown.append(
                [
                    order, system, f"{_sum(cells, order, system, 'seconds'):.1f}", ratios[0],
                    f"{_sum(cells, order, system, 'computed'):,.0f}", ratios[1],
                    f"{_sum(cells, order, system, 'cached') / prompt:.0%}" if prompt else "",
                    f"{_sum(cells, order, system, 'calls'):,.0f}",
                ]
            )  # fmt: skip
    questions = options.contexts * 6
    return {
        "title": f"{questions} questions about {options.contexts} contexts by {len(EXPERTS)} "
        f"experts and an editor, answers of {options.tokens} tokens, {options.seeds} seeds. "
        f"LangGraph runs `abatch` without a limit of calls at once. `{GROUPED}`: the questions of "
        f"a context are neighbours; `{SHUFFLED}`: rows in random order. The time of `{OURS}` "
        "includes the start of its process",
        "labels": 2,
        "columns": list(_COLUMNS),
        "rows": shown,
    }


def missed(cells: Sequence[Cell], *, goals: bool) -> list[str]:
    """Return the missed goals, plays with other answers, and plays on a machine that was too slow.
    goals: whether those of real engines apply.
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
    for order in _orders(cells) if goals else ():
        for system in SYSTEMS:
            for name, goal in (("computed", COMPUTED_GOAL), ("seconds", SECONDS_GOAL)):
                ratio = _over(cells, order, system, name)
                if system != OURS and not ratio <= goal:
                    what = "computed prompt tokens" if name == "computed" else "seconds"
                    found.append(f"{order}, over {system}: {what} {ratio:.3f}, goal {goal:g}")
    return found
