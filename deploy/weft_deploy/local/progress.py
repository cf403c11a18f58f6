"""Lines about processes that start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console

from weft_deploy.local.children import Child

_EVERY_S: Final = 10.0


class Progress:
    """Prints each process that is not ready every ten seconds. clock: monotonic seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._begun = clock()
        self._due = self._begun + _EVERY_S

    @property
    def elapsed_s(self) -> float:
        """Seconds since this object was created."""
        return self._clock() - self._begun

    def ready(self, name: str) -> None:
        """Print a line for a process that is ready."""
        self._console.print(f"{name} is ready after {self.elapsed_s:.1f} s")

    def waiting(self, children: Sequence[Child]) -> None:
        """Print the lines that are due for processes that are not ready yet."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + _EVERY_S
        for child in children:
            self._console.print(f"{self.elapsed_s:4.0f} s  {child.name} starts")
