"""`weft bench agents --rows`: map-reduce over TAT-QA by `weft run` and by LangGraph."""

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
from weft_engine.emulated.engines import shapes

from weft_bench.agents.engines import Engines, Wanted, started
from weft_bench.cli.agents import EMULATED, GPU, AgentsOptions
from weft_bench.report.figures import refuse
from weft_bench.report.page import conclude
from weft_bench.rows.plays import Play, Played, PlayError, Servers, Task, langgraph, play, weft_run
from weft_bench.rows.workload import EXPERTS, QUESTIONS, rows, workflow
from weft_bench.stack.local import StackError
from weft_bench.studies.cells import Estimate, estimate, geometric

OURS: Final = "weft run"
SYSTEMS: Final[Mapping[str, Play]] = {
    "LangGraph, replicas in turn": langgraph(direct=True),
    "LangGraph, Weft's gateway": langgraph(direct=False),
    OURS: weft_run,
}
GROUPED: Final = "grouped"
SHUFFLED: Final = "shuffled"
_CONTEXTS: Final = 14
_TOKENS: Final = 8
_LATE: Final = 0.01
# A figure of the play, and its name.
_COMPARED: Final = {"seconds": "seconds", "computed": "computed prompt tokens"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One play. order: of the rows."""

    order: str
    seed: int
    system: str
    played: Played


def run(options: AgentsOptions) -> int:
    """Play and report. Returns the exit status: 1 if answers differ or emulated engines were late,
    2 for invalid input.
    """
    contexts = options.pages or _CONTEXTS
    try:
        inputs = {
            (order, seed): rows(Path(options.data), contexts, seed, shuffled=order == SHUFFLED)
            for seed in range(options.first_seed, options.first_seed + options.seeds)
            for order in (GROUPED, SHUFFLED)
        }
        print(f"starting {options.replicas} {options.engines} replicas ...", flush=True)
        with started(_wanted(options)) as engines, tempfile.TemporaryDirectory() as work:
            cells = _plays(engines, options.dilate, inputs, Path(work))
    except (StackError, PlayError, OSError, ValueError, httpx.HTTPError) as error:
        return refuse("agents", error)
    except KeyboardInterrupt:
        return 130
    shown = []
    for one in cells:
        # Equal digests are equal answers.
        digest = blake2b(json.dumps(one.played.answers).encode(), digest_size=8).hexdigest()
        shown.append({**asdict(one), "played": {**asdict(one.played), "answers": digest}})
    return conclude(
        command_of(options),
        f"Map-reduce over TAT-QA, {contexts * QUESTIONS} rows, {options.replicas} "
        f"{options.engines} replicas",
        options.engines,
        [table(cells)],
        shown,
        missed(cells),
        options.json_file,
    )


def _wanted(options: AgentsOptions) -> Wanted:
    """Return the engines. Raises ValueError for an unknown preset."""
    is_emulated = options.engines == EMULATED
    return Wanted(
        replicas=options.replicas,
        shape=shapes(options.presets[0], 1)[0] if is_emulated else None,
        model=options.shape if options.engines == GPU else "",
        dilate=options.dilate,
        slots=options.slots,
        kv_blocks=options.kv_blocks,
        more=options.more,
    )


def command_of(options: AgentsOptions) -> str:
    """Return the command line that repeats this run, with DATA for the data folder."""
    words = ["weft bench agents --rows --data DATA --engines", options.engines]
    if options.engines == EMULATED:
        words.append(f"--presets {options.presets[0]} --dilate {options.dilate:g}")
    names = ("replicas", "pages", "slots", "kv_blocks", "first_seed", "seeds")
    words += [f"--{name.replace('_', '-')} {getattr(options, name)}" for name in names]
    return " ".join(words)


def _plays(
    engines: Engines,
    dilate: float,
    inputs: Mapping[tuple[str, int], Sequence[dict[str, str]]],
    work: Path,
) -> list[Cell]:
    """Play all systems on each input. Each input begins with another system."""
    found = []
    servers = Servers(engines.gateway, engines.urls, engines.model)
    text = workflow(servers.model, _TOKENS)
    # The first calls of an engine are slower, and it does not know yet whether programs return.
    first = Task(text, _TOKENS, next(iter(inputs.values()))[:QUESTIONS])
    for system in SYSTEMS.values():
        play(system, servers, first, work)
    names = list(SYSTEMS)
    for number, ((order, seed), given) in enumerate(inputs.items()):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            played = play(SYSTEMS[name], servers, Task(text, _TOKENS, given), work)
            played = replace(played, seconds=played.seconds / dilate)
            found.append(Cell(order, seed, name, played))
            print(
                f"{order}, seed {seed}, {name}: {played.seconds:.1f} s, "
                f"{played.computed:,} of {played.prompt:,} prompt tokens computed, "
                f"{played.late:.1%} late",
                flush=True,
            )
    return found


def _series(cells: Sequence[Cell], order: str, system: str, name: str) -> dict[int, float]:
    """Return a figure of a system by seed."""
    return {
        one.seed: float(getattr(one.played, name))
        for one in cells
        if (one.order, one.system) == (order, system)
    }


def over(cells: Sequence[Cell], order: str, system: str, name: str) -> Estimate:
    """Return our figure over that of a system, on the same rows: the geometric mean over seeds."""
    ours, theirs = (_series(cells, order, one, name) for one in (OURS, system))
    return geometric([log(ours[seed] / theirs[seed]) for seed in ours if theirs.get(seed)])


def table(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the table: means over seeds, and ratios seed by seed, with 95% intervals."""
    shown = []
    for order in dict.fromkeys(one.order for one in cells):
        for system in SYSTEMS:
            mine = {
                name: list(_series(cells, order, system, name).values())
                for name in (*_COMPARED, "prompt", "cached", "calls", "late")
            }
            row = [order, system]
            for name in _COMPARED:
                row.append(str(estimate(mine[name])))
                row.append("" if system == OURS else str(over(cells, order, system, name)))
            row.append(f"{sum(mine['cached']) / (sum(mine['prompt']) or 1):.0%}")
            shown.append([*row, str(estimate(mine["calls"])), f"{max(mine['late']):.1%}"])
    columns = ["rows", "system"]
    for name in _COMPARED.values():
        columns += [name, "weft run over it"]
    return {
        "title": f"{len(EXPERTS)} experts and an editor answer questions about pages, in "
        f"{_TOKENS} tokens. LangGraph runs `abatch` without a limit of calls at once. "
        f"`{GROUPED}`: the questions of a page are neighbours; `{SHUFFLED}`: rows in random order. "
        f"Times do not include imports, those of `{OURS}` include its planning",
        "labels": 2,
        "columns": [*columns, "cached", "calls", "late"],
        "rows": shown,
    }


def missed(cells: Sequence[Cell]) -> list[str]:
    """Return the plays with other answers, and those on a machine that was too slow."""
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
    return found
