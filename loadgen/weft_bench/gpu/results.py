"""The results of many runs in one file.

Each run adds cells. All cells have the same host, versions and configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from weft_bench.report import gpu as report
from weft_bench.report.figures import write_json

COMMAND: Final = "weft bench gpu"


class ResultsError(ValueError):
    """The file's results differ from this run in host, versions or configuration.

    The message lists the differences.
    """


@dataclass(slots=True)
class Results:
    """Results of a bench.

    host: from `Host.record`. versions: from `Host.versions`. configuration: shared by all cells.
    cells: figures by `Cell.key`. capacity: programs per second by workload. engines: start options
    by system.
    """

    host: dict[str, Any]
    versions: dict[str, str]
    configuration: dict[str, Any]
    cells: dict[str, dict[str, float]] = field(default_factory=dict)
    capacity: dict[str, float] = field(default_factory=dict)
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)

    def set_capacity(self, given: Mapping[str, float]) -> None:
        """Set rates that the user gives.

        Raises ResultsError if cells were played with other rates: the systems would be compared on
        different programs.
        """
        for workload, rate in given.items():
            known = self.capacity.get(workload, rate)
            played = any(key.startswith(f"{workload}/") for key in self.cells)
            if played and known != rate:
                raise ResultsError(
                    f"cells of {workload} were played with a capacity of {known:g} programs/s, not "
                    f"{rate:g}"
                )
            self.capacity[workload] = rate


_ALIKE: Final = ("host", "versions", "configuration")
_ADDED: Final = ("cells", "capacity", "engines")


def load(path: Path, mine: Results) -> None:
    """Add the cells of the file, if it exists.

    Raises ResultsError if it holds something else, or its host, versions or configuration differ.
    """
    if not path.exists() or not path.stat().st_size:
        return
    try:
        document = json.loads(path.read_text())
        if document["command"] != COMMAND:
            raise ValueError(f"it holds no results of {COMMAND}")
        for part in _ALIKE:
            theirs, ours = document[part], json.loads(json.dumps(getattr(mine, part)))
            unlike = [n for n in {**theirs, **ours} if theirs.get(n) != ours.get(n)]
            if unlike:
                told = (f"{n} {theirs.get(n)!r}, here {ours.get(n)!r}" for n in unlike)
                raise ValueError(f"it has another {part}: {', '.join(told)}")
        for part in _ADDED:
            getattr(mine, part).update(document[part])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{path}: {error}; write to another file with --json") from None


def save(path: Path, mine: Results) -> None:
    """Write all results atomically. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    extra = {name: getattr(mine, name) for name in ("host", "versions", *_ADDED)}
    write_json(part, COMMAND, mine.configuration, report.figures(mine.cells), extra)
    part.replace(path)
