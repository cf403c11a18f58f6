"""Waiting for conditions, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from weft_gateway.programs.table import ProcessTable


async def until(condition: Callable[[], bool], what: str) -> None:
    """Until the condition holds."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.002)


async def back(*tables: ProcessTable) -> None:
    """Until the tables have turned to their store again."""
    await until(lambda: not any(table.local for table in tables), "the tables turned to Redis")
