"""`weft bench agents`: plays the curve of agents at once, and reports it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console
from rich.progress import Progress
from weft_engine.emulated.presets import EngineShape

from weft_bench.agents import live_plays, virtual_plays
from weft_bench.agents.engines import Wanted
from weft_bench.agents.fronts import Front, Place, fronts
from weft_bench.agents.host import HostError, look
from weft_bench.agents.report import VIRTUAL, About, page, svg, tables
from weft_bench.agents.scene import Scene
from weft_bench.agents.shapes import SHAPES
from weft_bench.agents.store import Play, Store
from weft_bench.agents.systems import OURS, STICKY, STOCK
from weft_bench.cli.agents import EMULATED, GPU, SIZES, AgentsOptions
from weft_bench.report.figures import machine, origin, refuse
from weft_bench.report.rows import print_table
from weft_bench.stack.local import StackError
from weft_bench.stack.processes import NotReady
from weft_bench.stack.proxies import Absent
from weft_bench.studies.cells import Values
from weft_bench.studies.runner import run as run_all

_ROOT: Final = Path(__file__).resolve().parents[3]
# Options that select plays or say where figures go, and do not change a play.
_SELECT: Final = frozenset(
    {"data", "systems", "orders", "times", "host", "seeds", "first_seed", "presets", "parallel",
     "install", "json_file", "page", "chart", "rows", "pages"}
)  # fmt: skip
# Share of the work of emulated engines. A play with more lateness has the pace of this machine, and
# not of the cost model, and is not kept.
_MAY_BE_LATE: Final = 0.01
_GPU_BLOCK_TOKENS: Final = 16
_GPU_CONTEXT: Final = 131_072


@dataclass(frozen=True, slots=True)
class _Batch:
    """Plays, what plays one, and how many at once. imports: whether it imports vLLM."""

    plays: Sequence[Play]
    function: Callable[[Play], Values]
    parallel: int
    imports: bool


def run(options: AgentsOptions) -> int:
    """Play what is missing and report, also after a stop. Call it in the main thread, which gets
    the signals.

    Returns the exit status: 1 if a play fails or is late, 2 for invalid input.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        if options.engines == GPU:
            look(SHAPES[options.shape].weight_bytes * options.replicas)
        if options.rows:
            # Its imports need more.
            from weft_bench.rows import command as of_rows

            return of_rows.run(options)
        known = {name: value for name, value in asdict(options).items() if name not in _SELECT}
        # As a file has it.
        scene = json.loads(json.dumps(known))
        store = Store.of(options.json_file, scene)
        status = 0
        with _stops():
            try:
                for batch in _plan(options, store):
                    status = max(status, _play(options, batch, store))
            except (RuntimeError, StackError, NotReady, Absent, httpx.HTTPError) as error:
                print(f"weft bench agents: {error}", file=sys.stderr)
                status = 1
            except KeyboardInterrupt:
                status = 130
        if not store.plays:
            print("weft bench agents: nothing was played", file=sys.stderr)
            return status or 1
        _report(options, store)
        return status
    except (HostError, ValueError, OSError) as error:
        return refuse("agents", error)
    except ImportError as error:
        return refuse("agents", f"vLLM is required: {error}")


@contextmanager
def _stops() -> Iterator[None]:
    """SIGTERM ends the block like SIGINT."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _plan(options: AgentsOptions, store: Store) -> Iterator[_Batch]:
    """Yield the wanted plays, the longest first. Measures what fits. Raises ValueError for an
    unknown system, and the errors of `Scene.fit`.
    """
    for preset in options.presets:
        if preset not in store.fits:
            store.fits[preset] = scene_of(options, preset).fit(*_room(options, preset))
    of_virtual = virtual_plays.systems(options.orders)
    is_live = options.engines in (EMULATED, GPU)
    known = live_systems(options) if is_live else of_virtual
    if unknown := [name for name in options.systems if name not in known]:
        raise ValueError(f"unknown systems {', '.join(unknown)}; known: {', '.join(known)}")
    default = [*options.orders, STOCK] if options.engines == GPU else list(known)
    if options.replicas == 1:
        # With one engine this is stock.
        default = [name for name in default if name != STICKY]
    wanted = [
        Play(options.engines, preset, name, host, times, seed)
        for preset in options.presets
        for host in options.host
        for times in reversed(options.times)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for name in options.systems or default
    ]
    if is_live:
        yield _Batch(wanted, partial(_live, options, store.fits), options.parallel, False)
        # Virtual time plays the same, which shows how well it agrees.
        wanted = [replace(one, engines=VIRTUAL) for one in wanted if one.system in of_virtual]
    if options.engines != GPU:
        # Host memory changes nothing for a cache that holds everything.
        wanted = [one for one in wanted if not (one.host and of_virtual[one.system].endless)]
        jobs = 1 if is_live else options.parallel
        yield _Batch(wanted, partial(_virtual, options, store.fits), jobs, True)


def _play(options: AgentsOptions, batch: _Batch, store: Store) -> int:
    """Play what is missing. Returns the exit status."""
    missing = store.missing(batch.plays)
    if not missing:
        return 0
    if command_of(options) not in store.commands:
        store.commands.append(command_of(options))
    late = 0
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("plays", total=len(missing))

        def done(play: Play, values: Values) -> None:
            nonlocal late
            progress.advance(bar)
            if values.get("late", 0.0) <= _MAY_BE_LATE:
                store.add(play, values)
                return
            late += 1
            print(
                f"{play.system}, {play.times:g} times, seed {play.seed}: not kept, because the "
                f"machine was {values['late']:.1%} late: stop other work, or use --dilate",
                file=sys.stderr,
            )

        run_all(batch.function, missing, batch.parallel, done, preload=batch.imports)
    return min(late, 1)


def _virtual(options: AgentsOptions, fits: Mapping[str, int], play: Play) -> Values:
    system = virtual_plays.systems(options.orders)[play.system]
    scene, fit = scene_of(options, play.preset), fits[play.preset]
    return virtual_plays.play(scene, system, play.times, play.seed, fits=fit, host=play.host)


def _live(options: AgentsOptions, fits: Mapping[str, int], play: Play) -> Values:
    scene = scene_of(options, play.preset)
    at = scene.point(play.times, fits[play.preset])
    shape = _shape(options, play.preset)
    tokens, context = _room(options, play.preset)
    place = Place(tokens, options.dilate, None if shape is None else shape.cost)
    front = fronts(place, options.orders)[play.system]
    token_bytes = SHAPES[options.shape].token_bytes
    if shape is not None:
        token_bytes = shape.block_bytes // shape.block_tokens
    engines = Wanted(
        replicas=options.replicas,
        shape=shape,
        model="" if shape else options.shape,
        dilate=options.dilate,
        slots=options.slots,
        kv_blocks=options.kv_blocks,
        host_gib=play.host * tokens * token_bytes / 2**30,
        more=options.more,
    )
    return live_plays.play(
        live_plays.wanted_for(front, engines),
        front,
        scene.sessions(play.seed, at.available, min(context, tokens), at.least),
        at,
        live_plays.Pace(options.dilate, 60 * options.minutes),
        install=options.install,
    )


def live_systems(options: AgentsOptions) -> dict[str, Front]:
    """Return the real systems by name."""
    return fronts(Place(0), options.orders)


def _shape(options: AgentsOptions, preset: str) -> EngineShape | None:
    """Return a modelled engine, None on a GPU."""
    if options.engines == GPU:
        return None
    return virtual_plays.engines(scene_of(options, preset))[0]


def _room(options: AgentsOptions, preset: str) -> tuple[int, int]:
    """Return the tokens of an engine's cache, and of its longest call."""
    shape = _shape(options, preset)
    if shape is None:
        return options.kv_blocks * _GPU_BLOCK_TOKENS, _GPU_CONTEXT
    return shape.kv_blocks * shape.block_tokens, shape.context


def scene_of(options: AgentsOptions, preset: str) -> Scene:
    """Return the scene of a preset."""
    return Scene(
        workload=options.workload,
        preset=preset,
        replicas=options.replicas,
        calls=options.calls,
        gap_s=options.gap,
        per_place=options.per_place,
        chats_s=options.chats,
        slots=options.slots,
        kv_blocks=options.kv_blocks,
        data=options.data,
    )


def command_of(options: AgentsOptions) -> str:
    """Return the command line that repeats this run, with DATA for the data folder."""
    words = ["weft bench agents --data DATA"]
    unlike = {"data", "json_file", "page", "chart", "install", "parallel", "more"}
    for one in fields(options):
        value = getattr(options, one.name)
        if one.name in unlike or value == SIZES[options.engines].get(one.name, one.default):
            continue
        words.append(f"--{one.name.replace('_', '-')}")
        if isinstance(value, tuple):
            text = ",".join(f"{part:g}" if isinstance(part, float) else part for part in value)
            words.append(f"'{text}'" if " " in text else text)
        elif value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return " ".join([*words, *(("--", *options.more) if options.more else ())])


def _report(options: AgentsOptions, store: Store) -> None:
    about = {
        **{name: one.about for name, one in virtual_plays.systems(options.orders).items()},
        **{name: one.about for name, one in live_systems(options).items()},
    }
    found = store.measured([OURS, *about])
    made = list(tables(found))
    for one in made:
        print_table(one.title, one.columns, one.rows, one.labels)
    print(machine())
    store.write({"tables": [one._asdict() for one in made]})
    if options.page:
        notes = [
            *(f"`{preset}`: {fits} sessions fit" for preset, fits in store.fits.items()),
            *(f"{name}: {about[name]}" for name in about if found.where(system=name)),
        ]
        told = {**origin("", _ROOT), "commands": store.commands}
        title = f"Agents at once, {options.engines} engines"
        Path(options.page).write_text(page(About(title, told, notes), made))
    if options.chart:
        preset = options.presets[0]
        shown = found.where(engines=options.engines, preset=preset, host=0.0)
        if len(shown.levels("times")) < 2:
            print(f"no picture: {preset} needs plays of at least two points", file=sys.stderr)
            return
        engines = "engine" if options.replicas == 1 else "engines"
        title = f"Coding sessions at once on {options.replicas} {engines} of {preset}"
        note = f"{options.engines}; {store.fits[preset]} sessions fit the cache; means over seeds"
        Path(options.chart).write_text(svg(title, note, shown))
