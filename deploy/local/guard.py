"""Runs one command so that it can never be orphaned: `python -m deploy.local.guard COMMAND...`.

The guard holds the read end of a pipe (its standard input) whose write end only the supervisor
has. When the supervisor goes away, killed or not, the pipe closes and the guard ends the command's
whole process group. It does the same when the command itself ends: an engine that crashed must
not leave its engine core behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import Final

GRACE_S: Final = 10.0


def main(command: list[str]) -> int:
    """Run the command until it ends or standard input closes. Returns its exit status."""
    # The terminal's Ctrl-C is for the supervisor, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: os.killpg(process.pid, signal.SIGTERM))
    threading.Thread(target=watch, daemon=True).start()
    status = process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
