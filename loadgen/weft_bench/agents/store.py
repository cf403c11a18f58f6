"""The plays of a curve in one JSON file, which several runs fill."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from weft_bench.report.figures import origin
from weft_bench.studies.cells import Cell, Measured, Values

_ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Play:
    """One play. engines: virtual, emulated or gpu. host: host memory for KV over the cache. times:
    sessions at once over those that fit.
    """

    engines: str
    preset: str
    system: str
    host: float
    times: float
    seed: int


@dataclass(slots=True)
class Store:
    """The plays of a scene. path: "" keeps them in memory only. scene: what all plays have in
    common. fits: sessions that fit the caches, by preset. commands: that played them.
    """

    path: str
    scene: Mapping[str, Any]
    fits: dict[str, int] = field(default_factory=dict)
    plays: dict[Play, Values] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, path: str, scene: Mapping[str, Any]) -> Store:
        """Return the store of a file. Raises ValueError if the file has another scene, OSError if
        it cannot be read.
        """
        file = Path(path)
        if not path or not file.exists() or not file.stat().st_size:
            return cls(path, scene)
        try:
            found = json.loads(file.read_text())
            known = found["scene"]
            plays = {Play(**one["play"]): one["values"] for one in found["plays"]}
            fits, commands = dict(found["fits"]), list(found["commands"])
        except (ValueError, KeyError, TypeError) as error:
            what = f"{type(error).__name__} {error}"
            raise ValueError(f"{path} has no plays of `weft bench agents`: {what}") from None
        unlike = sorted(name for name in scene if known.get(name) != scene[name])
        if unlike:
            raise ValueError(f"{path} has plays with another {', '.join(unlike)}: use another file")
        return cls(path, scene, fits, plays, commands)

    def missing(self, wanted: Sequence[Play]) -> list[Play]:
        """Return the plays that are not stored."""
        return [one for one in wanted if one not in self.plays]

    def add(self, play: Play, values: Values) -> None:
        """Store a play, also in the file, so that a stop loses none."""
        self.plays[play] = values
        self.write()

    def write(self, more: Mapping[str, Any] | None = None) -> None:
        """Write the file. more: further parts of the document."""
        if not self.path:
            return
        document = {
            **origin("; ".join(self.commands), _ROOT),
            "commands": self.commands,
            "scene": dict(self.scene),
            "fits": self.fits,
            **(more or {}),
            "plays": [{"play": asdict(one), "values": v} for one, v in self.plays.items()],
        }
        file = Path(self.path)
        part = file.with_name(f"{file.name}.part")
        part.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        part.replace(file)

    def measured(self, systems: Sequence[str]) -> Measured:
        """Return all plays as cells. systems: their order in tables; others follow."""
        place = {name: at for at, name in enumerate(systems)}
        ordered = sorted(
            self.plays,
            key=lambda p: (p.preset, p.host, p.times, place.get(p.system, 99), p.system, p.seed),
        )
        return Measured({_cell(play): self.plays[play] for play in ordered})


def _cell(play: Play) -> Cell:
    settings = {name: value for name, value in asdict(play).items() if name != "seed"}
    return Cell(tuple(sorted(settings.items())), play.seed)
