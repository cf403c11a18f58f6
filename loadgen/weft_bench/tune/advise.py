"""`weft advise`: plays a record with other orders, replicas and caches, and says what would change.

The play needs vLLM's scheduler: `weft_bench.virtual`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Final

import typer
from weft_engine.emulated.presets import EngineShape
from weft_engine.wire import ORDER_NAMES

from weft_bench.agents.figures import figures
from weft_bench.agents.scene import BYTES_PER_TOKEN, Scene, largest_context
from weft_bench.cli.agents import numbers
from weft_bench.cli.options import counts, some_of
from weft_bench.report.rows import Column, show
from weft_bench.stats import mean, percentile
from weft_bench.studies.cells import Values
from weft_bench.tune.journals import TuneError, read
from weft_bench.tune.recorded import Line, Recorded, latest, recorded
from weft_bench.workloads.cutting import ReadyProgram, fit
from weft_bench.workloads.schema import TraceProgram

_COLUMNS: Final = (
    Column("mean", "s", "mean, s"),
    Column("p95", "s", "P95, s"),
    Column("ttft_mean", "s", "first token, s"),
    Column("ttft_p95", "s", "P95, s"),
    Column("hit_rate", "1", "hit rate", ".1%"),
    Column("fit", "1", "programs that fit", ".0%"),
)
# A smaller difference is not worth a change.
_WORTH: Final = 0.97

advise = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Case:
    """What serves the record. cache: KV blocks over the engine's own."""

    order: str
    replicas: int
    cache: float

    @property
    def text(self) -> str:
        """In words."""
        replicas = "1 replica" if self.replicas == 1 else f"{self.replicas} replicas"
        cache = "" if self.cache == 1 else f" with {self.cache:g} times the cache"
        return f"the order {self.order} and {replicas}{cache}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Its cells in a table."""
        return self.order, str(self.replicas), f"{self.cache:g}"


def fitting(programs: Sequence[Recorded], context: int) -> list[ReadyProgram]:
    """Return the programs without the calls that exceed a context, in tokens."""
    found = []
    for one in programs:
        calls = tuple(ready.call for ready in one.ready.calls)
        ready = fit(TraceProgram(one.ready.id, calls, one.arrival_s), context, BYTES_PER_TOKEN)
        if ready is not None:
            found.append(ready)
    return found


def shapes(preset: str, case: Case) -> list[EngineShape]:
    """Return the engines of a case. Raises ValueError for an unknown preset."""
    from weft_bench.agents.virtual_plays import engines

    found = engines(Scene(preset=preset, replicas=case.replicas))
    return [replace(one, kv_blocks=max(1, round(case.cache * one.kv_blocks))) for one in found]


def play(
    programs: Sequence[ReadyProgram], deadlines: Mapping[str, float], preset: str, case: Case
) -> Values:
    """Return the figures of programs that arrive as recorded. fit: the share of programs whose
    largest contexts fit the caches, of those that run, over time.

    Raises ValueError for an unknown preset or order.
    """
    from weft_bench.agents.virtual_plays import calls_of, ours
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.world import Setup, simulate

    system, engines = ours(case.order), shapes(preset, case)
    settings = EngineSettings(system.order, tags=system.tags)
    setup = Setup(engines, settings, system.balancer, deadlines=deadlines)
    begin_s = min(one.arrival_s or 0.0 for one in programs)
    played = simulate(programs, [(one.arrival_s or 0.0) - begin_s for one in programs], setup)
    spans = {one.id: (one.arrival_s, one.end_s) for one in played.programs}
    found = figures(calls_of(played), spans, list(spans), played.end_s)
    room = sum(one.kv_blocks * one.block_tokens for one in engines)
    fits = room / mean([largest_context(one) for one in programs])
    return {**found, "fit": _share(spans, fits)}


def _share(spans: Mapping[str, tuple[float, float]], fits: float) -> float:
    """Return the share of programs that fit, of those that run, over time."""
    events = sorted(event for begin, end in spans.values() for event in ((begin, 1), (end, -1)))
    run = running = fitted = 0.0
    for (at, change), (then, _) in pairwise(events):
        running += change
        run += running * (then - at)
        fitted += min(running, fits) * (then - at)
    return fitted / run if run else 1.0


def verdict(found: Mapping[Case, Values], now: Case) -> str:
    """Return what would change: by the order alone, and by all that was played."""
    same = [case for case in found if (case.replicas, case.cache) == (now.replicas, now.cache)]
    said = []
    for cases in (same, found):
        best = min(cases, key=lambda case: found[case]["mean"])
        share = found[best]["mean"] / found[now]["mean"]
        text = f"With {best.text}, programs would finish in {share:.2f} of the time now."
        if share < _WORTH and text not in said:
            said.append(text)
    return " ".join(said) or f"Nothing here is faster than {now.text}."


def as_recorded(programs: Sequence[Recorded]) -> str:
    """Return the record's own figures as text."""
    calls = [line for one in programs for line in one.lines]
    times = [max(line.end_s for line in one.lines) - one.arrival_s for one in programs]
    first = [line.first_byte_s for line in calls if line.first_byte_s is not None]
    hits = sum(line.cached_tokens or 0 for line in calls) / sum(c.prompt_tokens or 0 for c in calls)
    return (
        f"Recorded: {len(programs)} programs with {len(calls)} calls, mean {mean(times):.4g} s, "
        f"P95 {percentile(times, 0.95):.4g} s, first byte {mean(first or [0.0]):.4g} s, "
        f"hit rate {hits:.1%}"
    )


def _of_model(lines: Sequence[Line], model: str) -> list[Line]:
    """Return the answered calls of a model. Raises TuneError if it is not clear which."""
    answered = [line for line in lines if line.answered]
    known = Counter(line.model for line in answered)
    if model not in known and (model or len(known) != 1):
        have = ", ".join(f"{name} ({count} calls)" for name, count in known.most_common())
        raise TuneError(f"--model must be one of the record's: {have or 'it has no answered call'}")
    return [line for line in answered if line.model == (model or line.model)]


@advise.command()
def run(
    record: Annotated[Path, typer.Argument(help="file that `weft record` wrote")],
    preset: Annotated[
        str, typer.Option(help="an engine such as 8b-h100, or a file of `weft bench fit`")
    ],
    orders: Annotated[
        str, typer.Option(help="orders, comma-separated; the first one is that of now")
    ] = "resident,program_fifo,fcfs",
    replicas: Annotated[
        str, typer.Option(help="numbers of replicas, comma-separated; default: as recorded, twice")
    ] = "",
    cache: Annotated[str, typer.Option(help="KV memory over the engine's, comma-separated")] = "1",
    model: Annotated[str, typer.Option(help="the model to play, if the record has several")] = "",
    calls: Annotated[
        int, typer.Option(min=0, help="play the latest programs with up to so many calls; 0: all")
    ] = 4000,
) -> None:
    """Play a record in virtual time with other orders, replicas and cache sizes, and say what would
    change.

    Programs arrive as recorded; their calls follow answers after the recorded pauses.
    """
    from weft_bench.studies.runner import run as run_all

    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    wanted = counts(replicas, "--replicas", empty=True)
    caches = numbers(cache, "--cache")
    names = some_of(orders, ORDER_NAMES, "--orders")
    try:
        lines = _of_model(read(record), model)
        programs = recorded(latest(lines, calls))
        here = len({line.replica for one in programs for line in one.lines})
        now = Case(names[0], here, 1.0)
        cases = [Case(*each) for each in product(names, wanted or (here, 2 * here), caches)]
        cases = list(dict.fromkeys([now, *cases]))
        smallest = shapes(preset, replace(now, replicas=1, cache=min(caches)))[0]
        room = smallest.kv_blocks * smallest.block_tokens
        ready = fitting(programs, min(smallest.context, room))
        if not ready:
            raise TuneError(f"no call fits the {min(smallest.context, room)} tokens of the engine")
        deadlines = {one.ready.id: one.deadline_s for one in programs if one.deadline_s}
        found: dict[Case, Values] = {}
        run_all(partial(play, ready, deadlines, preset), cases, 0, found.__setitem__)
    except (TuneError, ValueError, ImportError) as error:
        typer.echo(f"weft advise: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(as_recorded(programs))
    kept = sum(len(one.lines) for one in programs)
    if kept < len(lines):
        left_out = f"{len(lines) - kept} earlier calls are left out (--calls)"
        typer.echo(f"{left_out}: their load is missing, and the first programs played are faster")
    cut = kept - sum(len(one.calls) for one in ready)
    if cut:
        typer.echo(f"{cut} calls exceed the context of the engine, and are left out")
    rows = {(*case.labels, "now" if case == now else ""): found[case] for case in cases}
    show(
        f"\nPlayed on {preset} in virtual time", ("order", "replicas", "cache", ""), rows, _COLUMNS
    )
    typer.echo(verdict(found, now))


if __name__ == "__main__":
    advise()
