"""The dashboard of deadlines and the alerts on a real Prometheus that scrapes a real gateway."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.prometheus import program
from support.turns import MESSAGES

pytestmark = [
    pytest.mark.system,
    pytest.mark.anyio,
]

DEPLOY = Path(__file__).parents[3] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
BOARD = DEPLOY / "grafana" / "dashboards" / "weft-slo.json"
FILE = """
version: 1
default: report
classes:
  report: {deadline: 90s}
  quick: {deadline: 0.001ms}
"""

# An engine that reports its costs, for the panels of its work and speed.
COSTS = {
    "step_s": 0.001, "weights_s": 0.01, "prefill_token_s": 1e-4, "decode_sequence_s": 1e-4,
    "context_token_s": 0.0, "samples": 99, "relative_error": 0.02,
}  # fmt: skip
STATE = {
    "weft": {},
    "engines": [
        {"costs": COSTS, "slots": 4, "step_tokens": 2048, "kv_blocks": 1000, "block_tokens": 16}
    ],
}


@pytest.fixture(autouse=True)
def downloaded() -> None:
    """Download Prometheus before a gateway runs, because the download blocks."""
    program("prometheus")


@asynccontextmanager
async def prometheus(folder: Path, gateway: str) -> AsyncIterator[httpx.AsyncClient]:
    """A Prometheus that scrapes the gateway every second, as a client of its API."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "weft-gateway",
                "static_configs": [{"targets": [gateway.removeprefix("http://")]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}/api/v1", trust_env=False) as api:
            yield api
    finally:
        process.terminate()
        await process.wait()


async def has_series(api: httpx.AsyncClient, expression: str) -> bool:
    """Whether a query has a result with a number. False while Prometheus starts."""
    try:
        answer = (await api.get("/query", params={"query": expression})).json()
    except httpx.HTTPError:
        return False
    assert answer["status"] == "success", answer
    return any(not math.isnan(float(one["value"][1])) for one in answer["data"]["result"])


async def use(gateway: Any) -> None:
    """Programs of two tenants that meet or miss their targets."""
    for number in range(24):
        headers = {
            "authorization": f"Bearer key{number % 2}",
            "x-session-id": f"p{number}",
            "x-weft-slo": "quick" if number % 3 == 0 else "report",
        }
        await gateway.call(body={"messages": MESSAGES}, headers=headers)
        await gateway.client.delete(f"/v1/sessions/p{number}", headers=headers)


async def test_every_panel_shows_series_and_every_rule_evaluates(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    (tmp_path / "slo.yaml").write_text(FILE)
    board: Any = json.loads(BOARD.read_text())
    queries = [
        target["expr"].replace("$__rate_interval", "5m")
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    async with (
        engine(canned={"/weft/state": STATE}) as stub,
        weft(stub, slo_file=str(tmp_path / "slo.yaml"), balancer="work") as gateway,
        prometheus(tmp_path, gateway.url) as api,
    ):
        missing = queries
        for _ in range(60):
            await use(gateway)
            await asyncio.sleep(0.5)
            missing = [one for one in missing if not await has_series(api, one)]
            if not missing:
                break
        assert missing == []
        groups = (await api.get("/rules")).json()["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert rules
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
