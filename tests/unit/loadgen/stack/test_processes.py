"""Child processes of a bench end with it, also after a stop signal during their start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from weft_bench.stack import processes

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_stop_signal_during_the_start_of_a_child_ends_the_child(tmp_path, monkeypatch):
    started = []
    # A second thread, because the kernel may deliver the signal to any thread.
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    real = subprocess.Popen

    def popen(*args, **options):
        started.append(real(*args, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        # The interpreter handles signals of other threads when it reacquires its lock.
        time.sleep(0.05)
        return started[0]

    def stop(number, frame):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            processes.running(SLEEPER, "http://127.0.0.1:9", tmp_path / "log"),
        ):
            pytest.fail("it was never ready")
    finally:
        signal.signal(signal.SIGTERM, before)
        done.set()
        other.join()
    assert started[0].poll() is not None
