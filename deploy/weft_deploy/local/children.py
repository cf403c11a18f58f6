"""Child processes of the supervisor: each runs under a guard and logs to a file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from weft_deploy.local import logs

_STOP_S: Final = 20.0
_TAIL_BYTES: Final = 65_536


@dataclass(slots=True)
class Child:
    """One process.

    name: its name in messages. log: file with its output. environment: variables added to those of
    the supervisor.
    """

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    lifeline: IO[bytes]
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def exited(self) -> int | None:
        """The exit status, or None while the process runs."""
        return self.process.poll()

    def tail(self) -> str:
        """Return the last 64 KiB of the log, or "" if the log cannot be read."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def last_lines(self, count: int = 1) -> str:
        """Return the last lines of the log, without noise."""
        return logs.end(self.tail(), count)


class Children:
    """Starts child processes and ends all of them. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder
        self._children: list[Child] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a command under a guard. `environment` is added to this process's variables."""
        log = self.logs / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "weft_deploy.local.guard", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                # Only the supervisor gets Ctrl-C; it ends its children itself.
                start_new_session=True,
            )
        assert process.stdin is not None
        child = Child(name, log, process, process.stdin, command, environment)
        self._children.append(child)
        return child

    def crashed(self) -> Child | None:
        """Return a child that has ended, or None if all children run."""
        return next((c for c in self._children if c.exited is not None), None)

    def forget(self, child: Child) -> None:
        """Stop watching a child that has ended."""
        child.lifeline.close()
        self._children.remove(child)

    def restart(self, child: Child) -> None:
        """Start a forgotten child again. Its old log is renamed to `*.old`."""
        child.log.replace(child.log.with_name(f"{child.log.name}.old"))
        self.start(child.name, child.command, child.environment)

    def stop(self) -> None:
        """End all children in parallel. Their guards end the grandchildren."""
        for child in self._children:
            child.lifeline.close()
        deadline = time.monotonic() + _STOP_S
        for child in self._children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._children.clear()
