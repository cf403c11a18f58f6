"""Children of a bench end with it, also when it is told to stop while they start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from loadgen import processes

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_who_is_told_to_stop_while_a_child_starts_ends_it(tmp_path, monkeypatch):
    started = []
    real = subprocess.Popen

    def told(*args, **options):
        started.append(real(*args, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    def stop(number, frame):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes.subprocess, "Popen", told)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            processes.running(SLEEPER, "http://127.0.0.1:9", tmp_path / "log"),
        ):
            pytest.fail("it was never ready")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert started[0].poll() is not None
