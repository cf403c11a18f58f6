"""Figures with name, value and unit, and the file format for them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str


def machine() -> str:
    """Return a description of the machine."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    return f"{os.cpu_count()} cores, {processor}, {platform.system()}, Python " + (
        platform.python_version()
    )


def installed(*names: str) -> str:
    """Return the version of the first of these packages that is installed, "" for none."""
    for name in names:
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def commit(root: Path) -> str:
    """Return the short commit of a checkout, with "with changes" if Python files differ from it.

    Empty without a repository or without git.
    """

    def git(*arguments: str) -> str:
        command = ("git", "-C", str(root), *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        name = git("rev-parse", "--short=9", "HEAD")
        return f"{name} with changes" if git("status", "--porcelain", "--", "*.py") else name
    except (OSError, subprocess.CalledProcessError):
        return ""


def origin(command: str, root: Path | None = None) -> dict[str, str]:
    """Return what a file says about its figures: command, machine and date, and a checkout's
    commit.
    """
    found = {
        "command": command,
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return found if root is None else found | {"commit": commit(root)}


def write_json(
    path: Path,
    command: str,
    configuration: Mapping[str, Any],
    figures: Sequence[Figure],
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write the figures with command, machine and date. extra: further parts of the document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        **origin(command),
        "configuration": dict(configuration),
        "figures": [asdict(figure) for figure in figures],
        **(extra or {}),
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def finish(
    command: str,
    json_file: str,
    configuration: Mapping[str, Any],
    figures: Sequence[Figure],
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Finish a bench: print the machine, and write the figures if a file is given."""
    print(machine())
    if json_file:
        write_json(Path(json_file), f"weft bench {command}", configuration, figures, extra)


def status(failures: Sequence[str]) -> int:
    """Print the first failures of a bench. Returns its exit status."""
    for failure in failures[:5]:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0


def refuse(command: str, error: object) -> int:
    """Print why a bench cannot run. Returns its exit status, 2."""
    print(f"weft bench {command}: {error}", file=sys.stderr)
    return 2
