"""`weft bench peers`: programs through the peers and through ours, over the same replicas."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
from rich.console import Console
from rich.progress import Progress

from loadgen.local_stack import StackError
from loadgen.peers.fronts import SESSION_HEADERS, Front, fronts
from loadgen.peers.plays import play
from loadgen.peers.replicas import Replicas, real_replicas, simulated_replicas
from loadgen.peers.scenes import (
    QUICK_SCENES,
    REAL_SCENES,
    SIMULATED_SCENES,
    LongGaps,
    Scene,
    scripts,
)
from loadgen.processes import NotReady
from loadgen.proxies import Absent
from loadgen.report import experiments
from loadgen.report import peers as report
from loadgen.report.figures import machine, write_json
from loadgen.report.peers import Turn
from loadgen.schema import TraceError

SIMULATED: Final = "simulated"
REAL: Final = "real"
# What `--quick` leaves out takes long to start.
_SLOW_TO_START: Final = "litellm/"
# Behind by more than this a second, the machine and not the cost model sets the pace.
_MAY_BE_BEHIND: Final = 0.01
# Long gaps are cut here, seconds of the engines: a run must end.
_LONGEST_S: Final = {SIMULATED: 15.0, REAL: 5.0}


@dataclass(frozen=True, slots=True)
class PeersOptions:
    """Options of the command; see `weft bench peers --help`. fronts, workloads: () for all.
    programs: of a workload, 0 for its own number. gap_factor: of long gaps."""

    data: str
    engines: str = SIMULATED
    fronts: tuple[str, ...] = ()
    orders: tuple[str, ...] = ("fcfs", "plas")
    workloads: tuple[str, ...] = ()
    seeds: int = 3
    replicas: int = 3
    preset: str = "8b-a100"
    slots: int = 4
    kv_blocks: int = 3000
    speed_up: float = 5.0
    programs: int = 0
    long_gaps: float = 0.1
    gap_factor: float = 30.0
    quick: bool = False
    install: bool = True
    json_file: str = ""
    plot: str = ""


def run(options: PeersOptions) -> int:
    """Play and report. Returns the exit status: 1 if ours had errors or did not start, 2 for bad
    input. A peer that cannot be had is absent, and changes nothing."""
    try:
        scenes = _scenes(options)
        with tempfile.TemporaryDirectory() as folder, _replicas(options, Path(folder)) as replicas:
            rows = _rows(options, replicas)
            turns, absent = _play(options, scenes, rows, replicas, Path(folder))
    except (TraceError, ValueError, StackError, httpx.HTTPError) as error:
        print(f"weft bench peers: {error}", file=sys.stderr)
        return 2
    except NotReady as error:
        print(f"weft bench peers: ours did not start\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    _report(options, turns, absent, rows)
    return int(any(_failed(turn) for turn in turns if turn.front.startswith(report.OURS)))


def _scenes(options: PeersOptions) -> list[Scene]:
    known: Sequence[Scene] = REAL_SCENES if options.engines == REAL else SIMULATED_SCENES
    known = QUICK_SCENES if options.quick else known
    names = [scene.name for scene in known]
    unknown = [name for name in options.workloads if name not in names]
    if unknown:
        raise ValueError(f"unknown workloads {unknown}; known are {', '.join(names)}")
    found = [scene for scene in known if scene.name in (options.workloads or names)]
    if options.programs:
        found = [replace(scene, programs=options.programs) for scene in found]
    return found


def _replicas(options: PeersOptions, work: Path) -> AbstractContextManager[Replicas]:
    print(f"starting {options.replicas} {options.engines} replicas ...", flush=True)
    if options.engines == REAL:
        return real_replicas(options.replicas, options.slots, options.kv_blocks)
    return simulated_replicas(
        options.replicas,
        options.preset,
        options.slots,
        options.kv_blocks,
        options.speed_up,
        work,
    )


def _rows(options: PeersOptions, replicas: Replicas) -> dict[str, Front]:
    known = fronts(replicas.place, options.orders)
    unknown = [name for name in options.fronts if name not in known]
    if unknown:
        raise ValueError(f"unknown fronts {unknown}; known are {', '.join(known)}")
    return {
        name: front
        for name, front in known.items()
        if name in (options.fronts or known)
        and not (options.quick and name.startswith(_SLOW_TO_START) and not options.fronts)
    }


def _play(
    options: PeersOptions,
    scenes: Sequence[Scene],
    rows: dict[str, Front],
    replicas: Replicas,
    work: Path,
) -> tuple[list[Turn], dict[str, str]]:
    """Every front in turn on the programs of every seed; each seed begins with another front, so
    that a drift of the machine meets all."""
    long_gaps = LongGaps(options.long_gaps, options.gap_factor, _LONGEST_S[options.engines])
    turns: list[Turn] = []
    absent: dict[str, str] = {}
    for seed in range(options.seeds):
        for scene in scenes:
            with Progress() as progress:
                told = progress.add_task(f"{scene.name}, seed {seed}: programs", total=None)
                played = scripts(scene, Path(options.data), seed, replicas, long_gaps)
                calls = sum(len(script.bodies) for script in played)
                progress.remove_task(told)
                for name in _rotated([n for n in rows if n not in absent], seed):
                    bar = progress.add_task(f"{scene.name}, seed {seed}: {name}", total=calls)
                    try:
                        slices = play(
                            rows[name],
                            played,
                            replicas,
                            work,
                            lambda bar=bar: progress.advance(bar),  # type: ignore[misc]
                            install=options.install and not options.quick,
                        )
                    except (Absent, NotReady, OSError) as error:
                        if not rows[name].proxy.requirement:
                            raise
                        absent[name] = (str(error).strip() or "no reason").splitlines()[-1]
                        continue
                    turns.append(Turn(scene.name, name, seed, slices))
    order = {name: place for place, name in enumerate(rows)}
    places = {scene.name: place for place, scene in enumerate(scenes)}
    turns.sort(key=lambda turn: (places[turn.workload], order[turn.front], turn.seed))
    return turns, absent


def _rotated(names: list[str], seed: int) -> list[str]:
    step = seed * 5 % max(1, len(names))
    return names[step:] + names[:step]


def _failed(turn: Turn) -> bool:
    return turn.slices["all"]["errors"] > 0


def _report(
    options: PeersOptions, turns: list[Turn], absent: dict[str, str], rows: dict[str, Front]
) -> None:
    found = {
        "kind": options.engines,
        "tables": report.tables(turns),
        "findings": [*report.findings(turns), *_notes(turns)],
        "published": "",
    }
    experiments.show(found, Console())
    for name, reason in absent.items():
        print(f"{name}: absent ({reason})")
    print(machine())
    command = f"weft bench peers --engines {options.engines}"
    if options.json_file:
        means, widths = report.figures(turns)
        configuration: dict[str, Any] = {
            **asdict(options),
            "absent": absent,
            "session_headers": SESSION_HEADERS,
            "fronts": [
                {"name": row.name, "version": row.version or "ours", "order": row.order,
                 "reads": row.reads, "keyed": row.keyed, "told_of_ends": row.ends}
                for row in rows.values()
            ],
        }  # fmt: skip
        extra = {
            "kind": options.engines,
            "half_widths": widths,
            "tables": found["tables"],
            "findings": found["findings"],
            "turns": [asdict(turn) for turn in turns],
        }
        write_json(Path(options.json_file), command, configuration, means, extra)
    if options.plot and turns:
        report.draw(Path(options.plot), turns, f"{options.engines} replicas")


def _notes(turns: Sequence[Turn]) -> list[str]:
    """What takes away from the figures."""
    found = []
    for turn in turns:
        of, figures = f"{turn.workload}, {turn.front}, seed {turn.seed}", turn.slices["all"]
        if figures["behind_s"] > _MAY_BE_BEHIND * figures["duration_s"]:
            found.append(
                f"{of}: the machine could not keep the replicas' pace, by "
                f"{figures['behind_s']:.1f} s of {figures['duration_s']:.1f} s"
            )
        if figures["untold"]:
            found.append(f"{of}: no replica tells of {figures['untold']:.0f} answered calls")
    return found
