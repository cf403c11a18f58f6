"""Functions that wait for a condition, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft_gateway.programs.table import ProcessTable

# Bounds of a wait, and of a program or a call to a real engine. They are more than the slowest
# machine needs, because only a failing test waits so long.
DEADLINE_S = 60.0
RUN_S = 600.0


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.002)


async def back(*tables: ProcessTable) -> None:
    """Wait until the tables use their store again."""
    await until(lambda: not any(table.local for table in tables), "the tables use Redis again")
