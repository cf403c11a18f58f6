"""The order of a gateway's engines: read, set and restored."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from support.serving import client_of
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import OrderError, kept_order, order_of, set_order

pytestmark = pytest.mark.anyio


class Gateway:
    """Engines with one order each, behind a gateway's two routes."""

    def __init__(self, *orders: str, refuses: str = "") -> None:
        self.orders = list(orders)
        self.refuses = refuses
        self.resets: list[bool] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            engines: Any = {
                f"r{n}": {"status": 200, "answer": {"engines": [{"policy": order}]}}
                for n, order in enumerate(self.orders)
            }
            return httpx.Response(200, json={"replicas": engines})
        body = json.loads(request.content)
        if body["policy"] == self.refuses:
            return httpx.Response(200, json={"applied": False})
        self.resets.append(body["reset_cache"])
        self.orders = [body["policy"] for _ in self.orders]
        return httpx.Response(200, json={"applied": True})


async def test_engines_get_their_order_back_with_their_caches() -> None:
    gateway = Gateway("atlas", "atlas")
    async with client_of(gateway) as client, kept_order(client):
        await set_order(client, "fcfs", reset_cache=True)
        assert await order_of(client) == "fcfs"
    assert gateway.orders == ["atlas", "atlas"]
    assert gateway.resets == [True, False]


async def test_order_is_restored_after_a_failed_replay() -> None:
    gateway = Gateway("atlas")

    async def replay() -> None:
        async with client_of(gateway) as client, kept_order(client):
            await set_order(client, "fcfs", reset_cache=True)
            raise KeyError

    with pytest.raises(KeyError):
        await replay()
    assert gateway.orders == ["atlas"]


@pytest.mark.parametrize("orders", [("atlas", "plas"), ()])
async def test_different_orders_cannot_be_restored_and_are_reported(
    orders: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = Gateway(*orders)
    async with client_of(gateway) as client:
        assert await order_of(client) == ""
        async with kept_order(client):
            pass
    assert gateway.resets == []
    assert "the engines keep the last order" in capsys.readouterr().err


async def test_refused_order_is_an_error() -> None:
    gateway = Gateway("fcfs", refuses="plas")
    async with client_of(gateway) as client:
        with pytest.raises(OrderError, match="plas: an engine rejected it"):
            await set_order(client, "plas", reset_cache=False)


async def test_missing_gateway_is_an_error() -> None:
    async with Client("http://127.0.0.1:9") as client:
        assert await order_of(client) == ""
        with pytest.raises(OrderError, match="no answer"):
            await set_order(client, "plas", reset_cache=False)
