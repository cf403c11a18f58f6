"""Runs a command that cannot be orphaned: `python -m weft_deploy.local.guard COMMAND...`.

The guard's standard input is the read end of a pipe; only the supervisor has the write end. When
the supervisor ends, even by SIGKILL, the pipe closes and the guard ends the command's process
group. It also ends the group when the command ends, because a crashed engine must not leave its
engine core behind. If the guard itself is killed, the kernel ends the command (Linux).
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
    """Return a hook for the new process that makes it get SIGTERM when its guard dies."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork, because code between fork and exec must do as little as possible.
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


def main(command: list[str]) -> int:
    """Run the command until it ends or standard input closes. Returns its exit status."""
    # The supervisor handles Ctrl-C, and then closes the pipe.
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
