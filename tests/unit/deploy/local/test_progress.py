"""What is seen while processes start."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO, StringIO

import pytest
from rich.console import Console
from rich.text import Text

from deploy.local.children import Child
from deploy.local.progress import Progress


@pytest.fixture
def child(tmp_path):
    log = tmp_path / "replica-0.log"
    log.write_text("first\n\x1b[31mloading [weights]\n\n")
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
        "  10 s  replica-0 is starting: loading [weights]",
        "  20 s  replica-0 is starting: loading [weights]",
        "replica-0 is ready after 24.0 s",
    ]


def test_a_terminal_shows_the_last_line_of_each_at_once(child):
    clock, out = Clock(), StringIO()
    with Progress(Console(file=out, force_terminal=True, width=39), clock) as progress:
        clock.now = 103.0
        progress.waiting([child, child])
    lines = [line.strip() for line in Text.from_ansi(out.getvalue()).plain.splitlines()]
    assert lines[:2] == ["3 s  replica-0 is starting: loading"] * 2
