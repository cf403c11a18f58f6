"""Builds the wheel of this project, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's variables without those by which Python finds a checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | variables


def build_wheel(checkout: Path, folder: Path) -> Path:
    """Build the wheel of a checkout into a folder. The build backend is already installed."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*command, "--directory", str(folder)],
        cwd=checkout,
        env=clean_environment(),
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("weft-*.whl")
    return wheel


def built_wheel(checkout: Path, folder: Path) -> ZipFile:
    """The built wheel, opened."""
    return ZipFile(build_wheel(checkout, folder))
