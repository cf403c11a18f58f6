"""The supervisor's children: started under a guard, logged to files, ended together."""

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
    """One process. name: what people call it. log: everything that it prints. environment: on top
    of the supervisor's own."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    lifeline: IO[bytes]
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def exited(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self.process.poll()

    def tail(self) -> str:
        """The last 64 KiB of its log, where there is one."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def last_lines(self, count: int = 1) -> str:
        """The end of its log, without noise."""
        return logs.end(self.tail(), count)


class Children:
    """Starts children and ends every one of them. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder
        self._children: list[Child] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a command under a guard, with `environment` on top of this process's own."""
        log = self.logs / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "weft_deploy.local.guard", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                # Ctrl-C reaches the supervisor alone; it ends its children in order.
                start_new_session=True,
            )
        assert process.stdin is not None
        child = Child(name, log, process, process.stdin, command, environment)
        self._children.append(child)
        return child

    def crashed(self) -> Child | None:
        """A child that has ended by itself, if there is one."""
        return next((c for c in self._children if c.exited is not None), None)

    def forget(self, child: Child) -> None:
        """Watch a child that has ended no longer."""
        child.lifeline.close()
        self._children.remove(child)

    def restart(self, child: Child) -> None:
        """Start a child that has ended, and that was forgotten, once more. Its log stays, under
        another name."""
        child.log.replace(child.log.with_name(f"{child.log.name}.old"))
        self.start(child.name, child.command, child.environment)

    def stop(self) -> None:
        """End all children, at once and together. Their guards see to grandchildren."""
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
