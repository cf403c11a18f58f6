"""The progress display while processes start."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO, StringIO

import pytest
from rich.console import Console
from rich.text import Text
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


def test_a_pipe_gets_a_line_every_ten_seconds(child):
    clock, out = Clock(), StringIO()
    with Progress(Console(file=out), clock) as progress:
        for second in range(25):
            clock.now = 100.0 + second
            progress.waiting([child])
        progress.ready("replica-0")
    assert out.getvalue().splitlines() == [
        "  10 s  replica-0: loading the model",
        "  20 s  replica-0: loading the model",
        "replica-0 is ready after 24.0 s",
    ]


def test_a_terminal_shows_a_line_for_each_process(child):
    clock, out = Clock(), StringIO()
    with Progress(Console(file=out, force_terminal=True, width=39), clock) as progress:
        clock.now = 103.0
        progress.waiting([child, child])
    lines = [line.strip() for line in Text.from_ansi(out.getvalue()).plain.splitlines()]
    assert lines[:2] == ["3 s  replica-0: loading the model"] * 2


def test_lines_show_phases_that_only_advance(child):
    clock, out = Clock(), StringIO()
    with Progress(Console(file=out), clock) as progress:
        for second, said in ((10, "Loading weights took 0.1 seconds"), (20, "x" * 100_000)):
            clock.now = 100.0 + second
            child.log.write_text(f"INFO [loader.py:1] {said}\n")
            progress.waiting([child])
    assert out.getvalue().splitlines() == [
        "  10 s  replica-0: warming up",
        "  20 s  replica-0: warming up",
    ]
