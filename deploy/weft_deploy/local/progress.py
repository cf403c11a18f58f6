"""Progress display while processes start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from weft_deploy.local import logs
from weft_deploy.local.children import Child

_PLAIN_EVERY_S: Final = 10.0


class Progress:
    """Shows the processes that are not ready yet. Use as a context manager.

    On a terminal it redraws one line for each process, and clears them at the end. Elsewhere (a
    pipe, a log file) it prints a line for each process every ten seconds. clock: monotonic seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._begun = clock()
        self._plain_at = self._begun + _PLAIN_EVERY_S
        self._phases: dict[str, str] = {}
        self._live = Live(console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the display was created."""
        return self._clock() - self._begun

    def ready(self, name: str) -> None:
        """Print a permanent line for a process that is ready."""
        self._console.print(f"{name} is ready after {self.elapsed_s:.1f} s")

    def waiting(self, children: Sequence[Child]) -> None:
        """Show the elapsed time and the start phase of each process that is not ready yet."""
        if self._console.is_terminal:
            width = max(20, self._console.width - 1)
            lines = [self._line(child)[:width] for child in children]
            self._live.update(Text("\n".join(lines), style="dim"), refresh=True)
        elif self._clock() >= self._plain_at:
            self._plain_at = self._clock() + _PLAIN_EVERY_S
            for child in children:
                self._console.print(Text(self._line(child)))

    def _line(self, child: Child) -> str:
        phase = self._phases.get(child.name, logs.STARTING)
        phase = self._phases[child.name] = logs.phase(child.tail(), phase)
        return f"{self.elapsed_s:4.0f} s  {child.name}: {phase}"
