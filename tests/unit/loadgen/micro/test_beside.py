"""The bench of chats beside rows, at a gateway with a fake engine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from weft_bench.cli.parts import BatchesOptions
from weft_bench.micro.beside import measure
from weft_bench.micro.beside_report import PLAIN, WAYS, missed
from weft_bench.stack.processes import free_port, running


@pytest.mark.slow
def test_all_ways_run_all_rows_beside_chats(tmp_path: Path) -> None:
    options = BatchesOptions(beside=200, chats=100.0, replicas=1, slots=2, dilate=1.0)
    engine, port = free_port(), free_port()
    fake = [sys.executable, "-m", "weft_bench.fake", "--port", str(engine), "--model", "mock"]
    serve = [sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)]
    settings = {
        **os.environ,
        "WEFT_REPLICAS": f"http://127.0.0.1:{engine}",
        "WEFT_DATA_DIR": str(tmp_path / "data"),
    }
    url = f"http://127.0.0.1:{port}"
    with (
        running(fake, f"http://127.0.0.1:{engine}/health", tmp_path / "engine.log"),
        running(serve, f"{url}/health", tmp_path / "gateway.log", settings),
    ):
        found = asyncio.run(measure(options, url, tmp_path))
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 200
    alone = found["chats alone"]
    remaining = max(found[way]["alone"] for way in WAYS) * (1 - 100 / alone["capacity"])
    for way in WAYS:
        figures = found[way]
        assert figures["chats"] > 0
        assert figures["p95_ratio"] == pytest.approx(figures["p95"] / alone["p95"])
        assert figures["speed"] == pytest.approx(figures["beside"] / remaining)


def test_goals_are_for_runs_and_batches_and_not_for_plain_calls() -> None:
    good = {"p95_ratio": 1.1, "speed": 0.9, "late": 0.0}
    found = {"chats alone": {"late": 0.0}, **dict.fromkeys(WAYS, good)}
    assert missed(found) == []
    slow = {"p95_ratio": 1.2, "speed": 0.8, "late": 0.02}
    assert missed({**found, PLAIN: slow}) == ["plain calls: the machine was too slow: 2.0% late"]
    assert missed({**found, "batch": slow}) == [
        "batch: P95 of chats over alone 1.20, goal 1.1",
        "batch: speed over the remaining capacity 0.80, goal 0.9",
        "batch: the machine was too slow: 2.0% late",
    ]
