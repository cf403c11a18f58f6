"""`weft bench forecasts`: how well the gateway's forecasts hold on recorded programs.

Programs are played without engines: a fixed number is active, and each makes one call per turn. All
forecasts are made by the gateway's own code, from what had ended by then, and are compared when the
program has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from weft_gateway.calls.kinds import stage_of
from weft_gateway.policies.costs import Costs
from weft_gateway.policies.forecast import PathLengths

from weft_bench.cli.parts import ForecastsOptions
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import Column, figures, show
from weft_bench.stats import percentile
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram, fitting
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.traces.files import read_trace

_BYTES_PER_TOKEN: Final = 4.0
_CONTEXT: Final = 10_000_000
_MODEL: Final = "m"
_FORECASTS: Final = ("remaining", "answer")
_COLUMNS: Final = (
    Column("programs", "programs", "programs", ",.0f"),
    Column("forecasts", "forecasts", "forecasts", ",.0f"),
    Column("p50_covers", "1", "p50 covers", ".3f"),
    Column("p90_covers", "1", "p90 covers", ".3f"),
    Column("error", "1", "median error of p50", ".2f"),
    Column("early_p90_covers", "1", "p90 covers, first 20 programs", ".3f"),
)
_EARLY: Final = 20


@dataclass(slots=True)
class Forecast:
    """A forecast and what it was about. early: made for one of the first programs."""

    actual: float
    p50: float
    p90: float
    early: bool


@dataclass(slots=True)
class _Running:
    """A program that is being played. levels: its calls by position on the path. made: forecasts of
    the calls after a position.
    """

    number: int
    levels: Sequence[Sequence[ReadyCall]]
    position: int = 0
    made: list[tuple[int, int, int]] = field(default_factory=list)


def run(options: ForecastsOptions) -> int:
    """Measure and report. Returns the exit status."""
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    try:
        for name in options.sets:
            found: dict[str, list[Forecast]] = {what: [] for what in _FORECASTS}
            count = 0
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                programs = list(islice(programs_of(name, options.data, seed), options.programs))
                count += len(programs)
                for what, forecasts in play(programs, options.at_once).items():
                    found[what] += forecasts
            rows |= {(name, what): row(count, found[what]) for what in _FORECASTS}
    except TraceError as error:
        return refuse("forecasts", error)
    title = f"forecasts of recorded programs, {options.at_once} active at once"
    show(title, ("set", "forecast"), rows, _COLUMNS)
    finish("forecasts", options.json_file, asdict(options), figures(rows, _COLUMNS))
    return 0


def programs_of(name: str, data: str, seed: int) -> Iterator[ReadyProgram]:
    """Yield the programs of a workload, or of a file or folder of recorded ones. Raises TraceError
    if there is no such set.
    """
    if name in WORKLOADS:
        yield from fitting(WORKLOADS[name].generate(seed, 1000), _CONTEXT, _BYTES_PER_TOKEN)
        return
    yield from fitting(read_trace(Path(data) / name, seed, 0, 1)[1], _CONTEXT, _BYTES_PER_TOKEN)


def play(programs: Iterable[ReadyProgram], at_once: int) -> dict[str, list[Forecast]]:
    """Return the forecasts of all calls of these programs, by kind of forecast."""
    lengths, costs = PathLengths(), Costs()
    found: dict[str, list[Forecast]] = {what: [] for what in _FORECASTS}
    waiting = iter(enumerate(programs))
    active: list[_Running] = []
    while True:
        for number, program in islice(waiting, at_once - len(active)):
            active.append(_Running(number, levels_of(program)))
        if not active:
            return found
        for one in active:
            _step(one, lengths, costs, found)
        active = [one for one in active if one.position < len(one.levels)]


def _step(
    one: _Running, lengths: PathLengths, costs: Costs, found: dict[str, list[Forecast]]
) -> None:
    """Make the next calls of a program, which run at the same time."""
    early = one.number < _EARLY
    if one.position:
        lengths.went_on("", one.position)
    one.position += 1
    one.made.append((one.position, *lengths.quantiles("", one.position)))
    for ready in one.levels[one.position - 1]:
        kind = f"{_MODEL}\n{_stage(ready)}"
        shape = costs.shape(kind, ready.prompt_tokens, None)
        if shape is not None:
            answer = Forecast(ready.max_tokens, shape.answer, shape.answer_high, early)
            found["answer"].append(answer)
        costs.learn(_MODEL, "r", kind, ready.prompt_tokens, 0, ready.max_tokens, 1.0)
    if one.position == len(one.levels):
        lengths.ended("", one.position)
        found["remaining"] += [
            Forecast(one.position - position, p50, p90, early) for position, p50, p90 in one.made
        ]


def levels_of(program: ReadyProgram) -> list[list[ReadyCall]]:
    """Return the calls of a program by their position on its path."""
    positions: list[int] = []
    levels: list[list[ReadyCall]] = []
    for number, ready in enumerate(program.calls):
        needs = ready.call.needs(number)
        positions.append(1 + max((positions[needed] for needed in needs), default=0))
        levels.extend([] for _ in range(positions[-1] - len(levels)))
        levels[positions[-1] - 1].append(ready)
    return levels


def _stage(ready: ReadyCall) -> str:
    """Return the stage as the gateway recognises it, if the recorded call has content."""
    if ready.call.parts:
        body: dict[str, Any] = {
            "messages": [{"role": "system", "content": ready.call.parts[0].name}]
        }
        return stage_of(body)
    return stage_of({"messages": list(ready.call.messages), "tools": list(ready.call.tools)})


def row(programs: int, forecasts: Sequence[Forecast]) -> dict[str, float]:
    """Return the figures of forecasts. The error is relative to what happened, at least 1."""

    def covered(some: Sequence[Forecast], share: str) -> float:
        hits = [one.actual <= getattr(one, share) for one in some]
        return sum(hits) / len(hits) if hits else 0.0

    errors = [abs(one.actual - one.p50) / max(1.0, one.actual) for one in forecasts]
    early = [one for one in forecasts if one.early]
    return {
        "programs": programs,
        "forecasts": len(forecasts),
        "p50_covers": covered(forecasts, "p50"),
        "p90_covers": covered(forecasts, "p90"),
        "error": percentile(errors, 0.5) if errors else 0.0,
        "early_p90_covers": covered(early, "p90"),
    }
