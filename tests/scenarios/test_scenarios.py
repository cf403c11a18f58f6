"""The bytes that clients, engines and stores see, one table per feature, against a process.

A table changes only with a decision that asks for other bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenario import Play, load

pytestmark = [pytest.mark.system, pytest.mark.anyio]

TABLES = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
async def test_a_scenario_plays_as_written(table: Path, tmp_path: Path) -> None:
    async with Play(load(table), tmp_path) as play:
        await play.play()
