"""Builds the wheel of this project, and creates environments to install it into."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Collection
from pathlib import Path

import pytest
from support.sources import ROOT
from support.waiting import RUN_S

# pip prints it before each retry, whatever the fault of the network.
_UNREACHABLE = "after connection broken by"


def clean_environment() -> dict[str, str]:
    """This process's variables without those that let Python find a checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def build_wheel(folder: Path, sources: Collection[str] = (), checkout: Path = ROOT) -> Path:
    """Build the wheel of a folder with a pyproject.toml, of all its names or of some. Needs no
    network: the build backend is a dependency of the tests."""
    checkout = folder / "checkout" if sources else checkout
    for source in sources:
        checkout.mkdir(exist_ok=True)
        (checkout / source).symlink_to(ROOT / source)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(
        [*command, "--directory", str(folder)],
        cwd=checkout,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


class Environment:
    """A fresh virtual environment. site: its site-packages."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        (self.site,) = folder.glob("lib/python*/site-packages")

    def install(self, *arguments: str | Path) -> None:
        """Install with pip, without dependencies. Skips the test if PyPI cannot be reached; fails
        it if pip fails otherwise."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        quick = ["--no-deps", "--no-compile", "--retries", "1", "--timeout", "15"]
        done = subprocess.run(
            [*pip, *quick, *map(str, arguments)],
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
        for line in done.stderr.splitlines() if done.returncode != 0 else ():
            if _UNREACHABLE in line:
                pytest.skip(f"PyPI cannot be reached: {line}")
        assert done.returncode == 0, done.stderr

    def run(self, *command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of this environment in a folder that is not the checkout."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
