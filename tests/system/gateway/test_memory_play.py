"""The memory of a gateway's process after hundreds of streams that end in every way."""

from __future__ import annotations

import pytest
from support.memory_play import MOST_LEFT_MB, WAYS, play

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_streams_leave_no_memory() -> None:
    found = await play(minutes=0.3, streams=64, programs=32, seconds=1.0)
    assert found["ways"].keys() == WAYS.keys()
    assert found["left"] == 0
    assert found["end"] <= found["before"] + MOST_LEFT_MB, found
