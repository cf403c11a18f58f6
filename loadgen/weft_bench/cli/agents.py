"""The command `weft bench agents`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final

import typer
from weft_deploy.options import PassThroughCommand, given

from weft_bench.cli.options import (
    JsonFile,
    Names,
    Option,
    Orders,
    Parsed,
    choice,
    command,
    writable,
)

agents = typer.Typer()

VIRTUAL: Final = "virtual"
EMULATED: Final = "emulated"
REAL: Final = "real"
GPU: Final = "gpu"
ENGINES: Final = (VIRTUAL, EMULATED, GPU, REAL)
# Without these options. Plays in real time are shorter than those in virtual time.
SIZES: Final[dict[str, dict[str, Any]]] = {
    VIRTUAL: {},
    EMULATED: {
        "presets": ("8b-h100",), "times": (1.0, 2.0, 4.0), "host": (0.0,), "seeds": 2, "calls": 12,
        "per_place": 1.0, "parallel": 1,
    },
    GPU: {
        "times": (2.0,), "host": (0.0,), "seeds": 1, "calls": 8, "per_place": 1.0, "parallel": 1,
        "slots": 256, "kv_blocks": 12_000, "minutes": 2.5, "presets": ("gpu",),
    },
    REAL: {"replicas": 2, "kv_blocks": 500, "slots": 4},
}  # fmt: skip
_OF_ROWS: Final = {"replicas": 3, "kv_blocks": 3000, "slots": 4, "presets": ("8b-a100",)}
_ONLY: Final = {
    "parallel": (VIRTUAL, EMULATED), "chats": (VIRTUAL,), "shape": (GPU,), "minutes": (GPU,),
    "dilate": (EMULATED,),
}  # fmt: skip


def numbers(text: str, option: str, *, zero: bool = False) -> tuple[float, ...]:
    """Parse comma-separated numbers. zero: allow it. Raises typer.BadParameter."""
    try:
        found = tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        found = ()
    if not found or not all(0 <= one < float("inf") and (one or zero) for one in found):
        what = f"{text!r} is not a list of numbers {'from' if zero else 'above'} 0, such as 1,2,4"
        raise typer.BadParameter(what, param_hint=option)
    return found


def _check(context: typer.Context, options: AgentsOptions) -> AgentsOptions:
    sizes = SIZES[options.engines]
    if options.rows:
        sizes = {**_OF_ROWS, **sizes}
        _exclude(
            context, ("systems", "orders", "times", "host", "chats", "calls"), "not with --rows"
        )
        if options.engines == VIRTUAL:
            raise typer.BadParameter("--rows needs --engines emulated, real or gpu")
    elif options.engines == REAL:
        raise typer.BadParameter("--engines real plays --rows only: a CPU is too slow for sessions")
    elif options.pages:
        raise typer.BadParameter("--pages: only with --rows")
    for name, engines in _ONLY.items():
        if options.engines not in engines and not (options.rows and name == "dilate"):
            _exclude(context, (name,), f"only with --engines {' or '.join(engines)}")
    wanted: dict[str, Any] = {
        name: size for name, size in sizes.items() if not given(context, (name,))
    }
    return replace(options, **wanted, more=tuple(context.args))


def _exclude(context: typer.Context, names: Sequence[str], why: str) -> None:
    if found := given(context, names):
        raise typer.BadParameter(f"{', '.join(found)}: {why}")


@command(agents, "agents", "weft_bench.agents.command", check=_check, cls=PassThroughCommand)
@dataclass(frozen=True, slots=True)
class AgentsOptions:
    """Play the curve of agents at once, against throughput and the time to complete a session, for
    Weft and its rivals.

    A file of --json keeps each play when it ends; the same command plays what is missing there.
    Every engine gets the arguments after `--` unchanged."""

    data: Annotated[str, Option(help="folder of the recorded workloads")]
    engines: Annotated[
        str,
        choice("weft_bench.cli.agents:ENGINES"),
        Option(
            help="virtual: virtual time; emulated: vLLM's server in real time on an emulated "
            "device; gpu: vLLM with the shape of a model and dummy weights; real: vLLM on a CPU, "
            "for --rows"
        ),
    ] = VIRTUAL
    systems: Annotated[
        Names, Option(help="systems, comma-separated; default: all of these engines")
    ] = ()
    orders: Annotated[Orders, Option(help="orders that Weft runs")] = ("resident",)
    times: Annotated[
        tuple[float, ...],
        Parsed(numbers),
        Option(help="sessions at once over those that fit the caches; emulated: 1,2,4; gpu: 2"),
    ] = (0.5, 1.0, 2.0, 4.0, 8.0)
    host: Annotated[
        tuple[float, ...],
        Parsed(partial(numbers, zero=True)),
        Option(help="host memory for KV, through vLLM's OffloadingConnector, over the cache"),
    ] = (0.0,)
    seeds: Annotated[
        int, Option(min=0, max=100, help="draws of sessions; emulated: 2; gpu: 1; 0 plays nothing")
    ] = 6
    first_seed: Annotated[int, Option(min=0, help="the first of them")] = 0
    presets: Annotated[
        Names, Option(help="engines such as 8b-h100, comma-separated, one curve for each")
    ] = ("8b-h100",)
    replicas: Annotated[int, Option(min=1, max=64, help="engines; with --rows 3, real: 2")] = 1
    workload: Annotated[
        str, Option(help="a folder or file of recorded programs, or a generated workload")
    ] = "coding_sessions"
    calls: Annotated[
        int, Option(min=0, help="first calls of a session, 0: all; emulated: 12; gpu: 8")
    ] = 24
    gap: Annotated[float, Option(min=0, help="longest gap before a call, seconds; 0: any")] = 10.0
    per_place: Annotated[
        float,
        Option(
            min=0.1,
            help="sessions that count, over those at once, but at least 12; emulated "
            "and gpu: 1, without this limit",
        ),
    ] = 2.0
    chats: Annotated[
        float,
        Option(min=0, help="virtual: seconds between single chats beside the sessions, 0: none"),
    ] = 0.0
    parallel: Annotated[
        int, Option(min=0, max=256, help="plays at once; 0: one a core; emulated: 1")
    ] = 0
    slots: Annotated[int, Option(min=0, help="calls that an engine runs at once; 0: its own")] = 0
    kv_blocks: Annotated[int, Option(min=0, help="KV blocks of an engine; 0: its own")] = 0
    shape: Annotated[
        str, choice("weft_bench.agents.shapes:SHAPES"), Option(help="gpu: 8b or 1b")
    ] = "8b"
    minutes: Annotated[float, Option(min=0, help="gpu: end each play after this; 0: no limit")] = (
        0.0
    )
    dilate: Annotated[
        float, Option(min=0.001, help="emulated: factor on all times of the engines")
    ] = 1.0
    rows: Annotated[
        bool,
        Option("--rows", help="play batch rows of TAT-QA by `weft run` and LangGraph instead"),
    ] = False
    pages: Annotated[int, Option(min=0, help="with --rows: pages of six questions; 0: 14")] = 0
    install: Annotated[bool, Option("--install/--no-install", help="install missing rivals")] = True
    json_file: JsonFile = ""
    page: Annotated[
        str, Option(callback=writable, help="write the tables to this Markdown file")
    ] = ""
    chart: Annotated[
        str, Option(callback=writable, help="draw the curve without host memory into this SVG file")
    ] = ""
    # Arguments of every engine, as given after `--`.
    more: tuple[str, ...] = ()
