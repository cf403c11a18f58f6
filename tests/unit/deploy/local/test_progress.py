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


def test_a_process_that_starts_is_shown_every_ten_seconds(child):
    clock, out = Clock(), StringIO()
    progress = Progress(Console(file=out, width=200), clock)
    for second in range(25):
        clock.now = 100.0 + second
        progress.waiting([child])
    progress.ready("replica-0")
    assert out.getvalue().splitlines() == [
        "  10 s  replica-0 starts",
        "  20 s  replica-0 starts",
        "replica-0 is ready after 24.0 s",
    ]
