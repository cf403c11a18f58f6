"""A real Prometheus and its promtool: those on the PATH, or Debian's package.

The package is unpacked once into the checkout's `.weft` folder, without changes to the system. If
it cannot be downloaded, the test is skipped with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.stack import ROOT
from support.waiting import RUN_S


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`. Skip the test if Debian does not offer it."""
    known = shutil.which(name)
    if known is not None:
        return known
    folder = ROOT / ".weft" / "prometheus"
    if not (folder / "usr" / "bin" / name).is_file():
        _unpack(folder)
    return str(folder / "usr" / "bin" / name)


def _unpack(folder: Path) -> None:
    """Download the package with lists of this checkout, so that those of the system stay."""
    if shutil.which("apt-get") is None:
        pytest.skip("not run: prometheus is not on the PATH, and this is not Debian")
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        place = Path(name)
        for part in ("lists/partial", "cache/archives/partial", "files"):
            (place / part).mkdir(parents=True)
        options = [
            *("-o", f"Dir::State::Lists={place / 'lists'}"),
            *("-o", f"Dir::Cache={place / 'cache'}"),
            *("-o", "APT::Sandbox::User="),
        ]
        for command in ("update", "download prometheus"):
            _run(["apt-get", "-q", *options, *command.split()], place)
        (package,) = place.glob("prometheus_*.deb")
        _run(["dpkg-deb", "-x", str(package), str(place / "files")], place)
        try:
            (place / "files").rename(folder)
        except OSError:
            # Another test process was faster.
            assert folder.is_dir()


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"not run: {command[0]} took more than 5 minutes")
    if done.returncode:
        pytest.skip(f"not run: {command[0]} failed: {done.stderr[-300:]}")
