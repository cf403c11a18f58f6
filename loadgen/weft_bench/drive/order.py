"""Reads, sets and restores the order of a gateway's engines over HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weft_bench.drive.client import Client, Refused
from weft_bench.drive.counters import engines


class OrderError(RuntimeError):
    """The engines do not accept an order. The message says why."""


async def set_order(client: Client, order: str, *, reset_cache: bool) -> None:
    """Set the order in every engine.

    reset_cache: also empty the prefix caches. Raises OrderError.
    """
    body = {"policy": order, "reset_cache": reset_cache}
    try:
        answer = await client.post("/weft/policy", body)
        applied = answer.json()["applied"]
    except Refused as error:
        raise OrderError(f"policy {order}: the gateway answered {error}") from None
    except OSError as error:
        raise OrderError(f"policy {order}: no answer from {client.base_url}: {error}") from None
    if not applied:
        raise OrderError(f"policy {order}: an engine rejected it: {answer.text[:500]}")


async def order_of(client: Client) -> str:
    """Return the order that all engines have; "" if they differ or do not report it."""
    try:
        state = (await client.get("/weft/state")).json()
        found = {engine.get("policy") for engine in engines(state)}
    except (OSError, ValueError):
        return ""
    return str(found.pop() or "") if len(found) == 1 else ""


@asynccontextmanager
async def kept_order(client: Client) -> AsyncIterator[None]:
    """Restore the engines' order after the block. A failure is printed to stderr."""
    before = await order_of(client)
    try:
        yield
    finally:
        try:
            if not before:
                raise OrderError("the previous order is unknown")
            await set_order(client, before, reset_cache=False)
        except OrderError as error:
            print(f"the engines keep the last order: {error}", file=sys.stderr)
