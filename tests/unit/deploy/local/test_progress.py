"""The progress display while processes start."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO, StringIO

import pytest
from rich.console import Console
from weft_deploy.local.children import Child
from weft_deploy.local.progress import Progress


@pytest.fixture
def child(tmp_path):
    log = tmp_path / "replica-0.log"
    log.write_text("WARNING the global random seed is 0\nINFO Starting to load model /m...\n")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return Child("replica-0", log, process, BytesIO())


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_new_phase_and_every_ten_seconds_have_a_line(child):
    clock, out = Clock(), StringIO()
    progress = Progress(Console(file=out), clock)
    for second in range(25):
        clock.now = 100.0 + second
        if second == 14:
            child.log.write_text("INFO [loader.py:1] Loading weights took 0.1 seconds\n")
        elif second == 16:
            # Phases only advance.
            child.log.write_text("x" * 100_000)
        progress.waiting([child])
    progress.ready("replica-0")
    assert out.getvalue().splitlines() == [
        "   0 s  replica-0: loading the model",
        "  10 s  replica-0: loading the model",
        "  14 s  replica-0: warming up",
        "  20 s  replica-0: warming up",
        "replica-0 is ready after 24.0 s",
    ]
