"""Joins the plays of several commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from weft_bench.cli.peers import PeersOptions
from weft_bench.peers.scenes import Scene
from weft_bench.report.peers import ALL, Turn

# All plays must have these in common. The other options select plays.
_COMMON: Final = (
    "engines", "replicas", "preset", "slots", "kv_blocks", "dilate", "long_gaps", "gap_factor",
    "chats", "turn_target_scale",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Joined:
    """The plays of some files. Late plays are left out, so that they are played again.

    rows: of fronts, by name. configuration: what the plays share. late: number of late plays.
    """

    turns: tuple[Turn, ...] = ()
    rows: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    late: int = 0

    def has(self, scene: Scene, load: float, front: str, seed: int) -> bool:
        """Return whether a front has played this."""
        wanted = (scene.name, load, front, seed)
        return any((t.workload, t.load, t.front, t.seed) == wanted for t in self.turns)

    def rate(self, scene: Scene, load: float, seed: int) -> float:
        """Return the rate of arrivals that the fronts of a seed have played, 0 if none has."""
        wanted = (scene.name, load, seed)
        found = (t.rate for t in self.turns if (t.workload, t.load, t.seed) == wanted)
        return next(found, 0.0)


def joined(options: PeersOptions) -> Joined:
    """Return the plays of the files to join.

    Files may have the same plays, for example if one was joined to the other. Raises ValueError if
    a file has no plays, if engines or programs differ, and if two files have different figures of a
    play; OSError if a file cannot be read.
    """
    turns: dict[tuple[Any, ...], Turn] = {}
    rows: dict[str, dict[str, Any]] = {}
    commands: list[str] = []
    common: dict[str, Any] = {}
    wanted = {name: value for name, value in asdict(options).items() if name in _COMMON}
    for file in options.join:
        try:
            document = json.loads(Path(file).read_text())
            configuration = document["configuration"]
            found = [Turn(**turn) for turn in document["turns"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} has no plays: {type(error).__name__} {error}") from None
        # Older files do not have all options.
        common = {name: configuration.get(name, wanted[name]) for name in _COMMON}
        if options.seeds == 0 and not turns:
            wanted = common
        unlike = [name for name in _COMMON if common[name] != wanted[name]]
        if unlike:
            raise ValueError(f"{file} has other plays: {', '.join(unlike)} differ")
        for turn in found:
            key = (turn.workload, turn.load, turn.seed, turn.front)
            before = turns.setdefault(key, turn)
            if before.late:
                turns[key] = turn
            elif before != turn and not turn.late:
                where = f"{turn.scene}, {turn.front}, seed {turn.seed}"
                raise ValueError(f"{file} has other figures of {where}")
        rows |= {row["name"]: row for row in configuration["fronts"]}
        commands += configuration.get("commands") or [document["command"]]
    _check_same(list(turns.values()))
    kept = tuple(turn for turn in turns.values() if not turn.late)
    late = len(turns) - len(kept)
    return Joined(kept, rows, wanted if turns else {}, tuple(dict.fromkeys(commands)), late)


def _check_same(turns: list[Turn]) -> None:
    """Check that all fronts of a seed played equally many programs at the same rate."""
    programs: dict[tuple[Any, ...], tuple[float, float]] = {}
    for turn in turns:
        whole = turn.slices[ALL]
        played = (turn.rate, whole["programs"] + whole["errors"])
        if programs.setdefault((turn.workload, turn.load, turn.seed), played) != played:
            raise ValueError(f"{turn.scene}, seed {turn.seed}: the fronts played other programs")
