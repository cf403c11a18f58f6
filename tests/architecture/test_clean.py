"""The checks of `make check`, as part of `make test`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.sources import ROOT
from support.waiting import RUN_S


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=" ".join,
)
def test_the_tools_report_no_problem(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
