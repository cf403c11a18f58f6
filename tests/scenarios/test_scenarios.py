"""The bytes that clients, engines and stores see, one table per feature, against a process.

A table changes only with a decision that asks for other bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.scenario import Play

pytestmark = [pytest.mark.system, pytest.mark.anyio]

TABLES = {file.stem: file.read_text() for file in Path(__file__).parent.glob("*.yaml")}


@pytest.mark.parametrize("name", sorted(TABLES))
async def test_a_scenario_plays_as_written(name: str, tmp_path: Path) -> None:
    async with Play(yaml.safe_load(TABLES[name]), tmp_path) as play:
        await play.play()
