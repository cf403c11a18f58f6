"""Runs one command so that it can never be orphaned: `python -m weft_deploy.local.guard
COMMAND...`.

The guard holds the read end of a pipe (its standard input) whose write end only the supervisor
has. When the supervisor goes away, killed or not, the pipe closes and the guard ends the command's
whole process group. It does the same when the command itself ends: an engine that crashed must
not leave its engine core behind. Should the guard itself be killed, the kernel ends the command
(Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

GRACE_S: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1


def _die_with_parent() -> Callable[[], None] | None:
    """What the command does before it starts, so that it gets SIGTERM when its guard dies."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded here: between fork and exec as little as possible should happen.
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


def main(command: list[str]) -> int:
    """Run the command until it ends or standard input closes. Returns its exit status."""
    # The terminal's Ctrl-C is for the supervisor, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent(),
    )

    def end(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        end(signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: end(signal.SIGTERM))
    threading.Thread(target=watch, daemon=True).start()
    status = process.wait()
    end(signal.SIGKILL)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
