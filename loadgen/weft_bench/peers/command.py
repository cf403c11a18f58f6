"""`weft bench peers`: plays programs through the peers and through Weft on the same replicas."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from rich.progress import Progress

from weft_bench.cli.peers import EMULATED, GPU, REAL, PeersOptions
from weft_bench.peers.fronts import SESSION_HEADERS, STOCK, WEFT, Front, fronts
from weft_bench.peers.host import HostError, look
from weft_bench.peers.joining import Joined, joined
from weft_bench.peers.plays import play
from weft_bench.peers.replicas import Replicas, replicas
from weft_bench.peers.scenes import (
    EMULATED_SCENES,
    GENERATED_SCENES,
    QUICK_SCENES,
    REAL_SCENES,
    LongGaps,
    Scene,
    cast,
)
from weft_bench.peers.shapes import SHAPES
from weft_bench.report import page, turn_targets
from weft_bench.report import peers as report
from weft_bench.report.figures import machine, refuse, write_json
from weft_bench.report.peers import Turn
from weft_bench.stack.local import StackError
from weft_bench.stack.processes import NotReady
from weft_bench.stack.proxies import Absent, why_absent
from weft_bench.workloads.schema import TraceError

_T = TypeVar("_T")
_LOW_PRIORITY: Final = 19
# Rows that `--quick` skips: the first starts slowly, the others are similar to remaining rows.
_NOT_QUICK: Final = (
    "litellm/session_affinity", "vllm-router/cache_aware", "weft/plas", "weft/fcfs/at-home",
)  # fmt: skip
# Limit of long gaps, seconds of the engines, so that a run ends.
_LONGEST_S: Final = {EMULATED: 15.0, REAL: 5.0, GPU: 15.0}


@dataclass(slots=True)
class _Found:
    """Completed plays, the reasons for absent fronts, and all rows.

    earlier: plays of the files to join. host: the GPU and the versions, empty without a GPU.
    """

    earlier: Joined
    turns: list[Turn] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)


def run(options: PeersOptions) -> int:
    """Play and report, also after a stop.

    Returns the exit status: 1 if Weft had errors or did not start, or if no front played, 2 for
    invalid input. An unavailable peer is listed as absent and does not change the status.
    """
    found, status = _Found(Joined()), 0
    try:
        if options.engines == GPU:
            found.host = look(SHAPES[options.shape].weight_bytes * options.replicas)
        if options.rows:
            # Its imports need the extra `bench`.
            from weft_bench.rows import command as of_rows

            return of_rows.run(options)
        scenes = _scenes(options)
        found.earlier = earlier = joined(options)
        found.turns, found.rows = list(earlier.turns), dict(earlier.rows)
        if earlier.late:
            print(f"{earlier.late} plays are left out because their engines were late")
        if options.seeds:
            _start(options, scenes, found)
    except (HostError, TraceError, ValueError, StackError, OSError, httpx.HTTPError) as error:
        return refuse("peers", error)
    except NotReady as error:
        print(f"weft bench peers: Weft did not start\n{error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    if found.turns:
        _report(options, found)
    elif not status:
        print("weft bench peers: no front played", file=sys.stderr)
        return 1
    failed = any(_failed(turn) for turn in found.turns if turn.front.startswith(report.OURS))
    return status or int(failed)


def _start(options: PeersOptions, scenes: Sequence[Scene], found: _Found) -> None:
    """Start the engines and play."""
    print(f"starting {options.replicas} {options.engines} replicas ...", flush=True)
    with tempfile.TemporaryDirectory() as folder, replicas(options, _schedulers(options)) as by:
        rows = _rows(options, next(iter(by.values())))
        found.rows |= {
            row.name: {
                "name": row.name, "version": row.version or "ours", "order": row.order,
                "reads": row.reads, "keyed": row.keyed, "told_of_ends": row.ends,
            }
            for row in rows.values()
        }  # fmt: skip
        _play(options, scenes, rows, by, Path(folder), found)


def _scenes(options: PeersOptions) -> list[Scene]:
    known: Sequence[Scene] = REAL_SCENES if options.engines == REAL else EMULATED_SCENES
    known = QUICK_SCENES if options.quick else known
    named = known if known is not EMULATED_SCENES else (*known, *GENERATED_SCENES)
    names = [scene.name for scene in named]
    unknown = [name for name in options.workloads if name not in names]
    if unknown:
        raise ValueError(f"unknown workloads {unknown}; known: {', '.join(names)}")
    found = [scene for scene in named if scene.name in options.workloads] or list(known)
    if options.programs:
        found = [replace(scene, programs=options.programs) for scene in found]
    return found


def command_of(options: PeersOptions) -> str:
    """Return the command line that repeats this run, with DATA for the data folder."""
    words = ["weft bench peers --data DATA --engines", options.engines]
    unlike = {"data", "engines", "install", "json_file", "more"}
    unlike |= {"preset", "dilate"} if options.engines != EMULATED else {"shape"}
    for one in fields(options):
        value = getattr(options, one.name)
        if one.name in unlike or value == one.default:
            continue
        words.append(f"--{one.name.replace('_', '-')}")
        if isinstance(value, tuple):
            words.append(",".join(value))
        elif value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return " ".join([*words, *(("--", *options.more) if options.more else ())])


def _schedulers(options: PeersOptions) -> list[str]:
    """Return the schedulers of the engines to start: those that a front plays on."""
    ours = [name.startswith(report.OURS) for name in options.fronts] or [True, False]
    return [name for name, needed in ((WEFT, any(ours)), (STOCK, not all(ours))) if needed]


def _rows(options: PeersOptions, replicas: Replicas) -> dict[str, Front]:
    known = fronts(replicas.place, options.orders, targets=options.turn_target_scale > 0)
    unknown = [name for name in options.fronts if name not in known]
    if unknown:
        raise ValueError(f"unknown fronts {unknown}; known: {', '.join(known)}")
    return {
        name: front
        for name, front in known.items()
        if name in (options.fronts or known)
        and (options.fronts or not options.quick or name not in _NOT_QUICK)
    }


def _play(
    options: PeersOptions,
    scenes: Sequence[Scene],
    rows: dict[str, Front],
    by: Mapping[str, Replicas],
    work: Path,
    found: _Found,
) -> None:
    """Play every front on the programs of every seed.

    Each seed starts with another front, so that a drift of the machine affects all. by: the
    engines by scheduler.
    """
    long_gaps = LongGaps(options.long_gaps, options.gap_factor, _LONGEST_S[options.engines])
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for scene in scenes:
            with Progress() as progress:
                told = progress.add_task(f"{scene.name}, seed {seed}: programs", total=None)
                missing = [n for n in rows if not found.earlier.has(scene, options.load, n, seed)]
                if not missing:
                    continue
                parts = _apart(
                    cast,
                    scene,
                    Path(options.data),
                    seed,
                    next(iter(by.values())),
                    long_gaps,
                    load=options.load,
                    rate=found.earlier.rate(scene, options.load, seed),
                    chats=options.chats,
                    scale=options.turn_target_scale,
                )
                played = parts.scripts
                # Chats are played twice.
                calls = sum(len(script.bodies) * (1 + script.chat) for script in played)
                progress.remove_task(told)
                for name in _rotated([n for n in missing if n not in found.absent], seed):
                    bar = progress.add_task(f"{scene.name}, seed {seed}: {name}", total=calls)
                    try:
                        slices = play(
                            rows[name],
                            played,
                            by[rows[name].scheduler],
                            work,
                            lambda bar=bar: progress.advance(bar),  # type: ignore[misc]
                            install=options.install and not options.quick,
                        )
                    except (Absent, NotReady, OSError) as error:
                        if not rows[name].proxy.requirement:
                            raise
                        found.absent[name] = why_absent(error)
                        print(f"{name} is absent: {found.absent[name]}", file=sys.stderr)
                        continue
                    found.turns.append(
                        Turn(
                            scene.name, name, seed, slices, options.load, parts.rate, parts.capacity
                        )
                    )
                    _write(options, found)


def _apart(function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    """Call a function in a child process.

    Virtual time imports vLLM, which would keep a gigabyte of memory during the plays. The process
    has a low priority, so that it does not delay the engines of another bench.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), os.nice, (_LOW_PRIORITY,)) as pool:
        return pool.submit(function, *arguments, **options).result()


def _rotated(names: list[str], seed: int) -> list[str]:
    step = seed * 5 % max(1, len(names))
    return names[step:] + names[:step]


def _failed(turn: Turn) -> bool:
    return turn.slices["all"]["errors"] > 0


def _report(options: PeersOptions, found: _Found) -> None:
    document = _document(options, found)
    page.show(document)
    _write(options, found)
    print(found.host.get("gpu", {}).get("name", "no GPU"), machine(), sep="; ")


def _sorted(found: _Found) -> list[Turn]:
    order = {name: place for place, name in enumerate(found.rows)}
    workloads = list(dict.fromkeys(turn.workload for turn in found.turns))
    return sorted(
        found.turns,
        key=lambda t: (workloads.index(t.workload), t.load, order[t.front], t.seed),
    )


def _document(options: PeersOptions, found: _Found) -> dict[str, Any]:
    turns = _sorted(found)
    missing = [f"{name}: absent ({reason})" for name, reason in found.absent.items()]
    document = {
        "title": f"Comparison with other proxies, {options.engines} replicas",
        "kind": options.engines,
        "tables": report.tables(turns),
        "findings": [*report.findings(turns), *_notes(turns), *missing],
    }
    if not turn_targets.given(turns):
        return document
    return document | {
        "title": turn_targets.title(turns),
        "tables": [*turn_targets.tables(turns), *report.tables(turns, turn_targets.SLACK)],
        "findings": [*turn_targets.findings(turns), *_notes(turns), *missing],
    }


def _write(options: PeersOptions, found: _Found) -> None:
    """Write the figures. This happens after each play, so that a stop loses none."""
    if not options.json_file:
        return
    turns = _sorted(found)
    means, widths = report.figures(turns)
    configuration: dict[str, Any] = {
        **asdict(replace(options, data="DATA", json_file="")),
        **({"host": found.host} if found.host else {}),
        **found.earlier.configuration,
        "absent": found.absent,
        "session_headers": SESSION_HEADERS,
        "fronts": list(found.rows.values()),
        "commands": [*found.earlier.commands, *([command_of(options)] if options.seeds else [])],
    }
    extra = {
        **_document(options, found),
        "half_widths": widths,
        "turns": [asdict(turn) for turn in turns],
    }
    write_json(Path(options.json_file), command_of(options), configuration, means, extra)


def _notes(turns: Sequence[Turn]) -> list[str]:
    """Return notes that qualify the figures."""
    found = []
    for turn in turns:
        of, figures = f"{turn.scene}, {turn.front}, seed {turn.seed}", turn.slices["all"]
        if turn.late:
            late = f"{figures['late']:.1%}"
            found.append(f"{of}: the machine could not keep the replicas' pace: {late} late")
        if figures["untold"]:
            found.append(f"{of}: no replica reports {figures['untold']:.0f} answered calls")
    return found
