"""Reads, sets and restores the order of a gateway's engines over HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from weft_bench.drive.counters import engines


class OrderError(RuntimeError):
    """The engines do not accept an order. The message says why."""


async def set_order(client: httpx.AsyncClient, base: str, order: str, *, reset_cache: bool) -> None:
    """Set the order in every engine.

    reset_cache: also empty the prefix caches. Raises OrderError.
    """
    body = {"policy": order, "reset_cache": reset_cache}
    try:
        answer = await client.post(f"{base}/weft/policy", json=body)
    except httpx.HTTPError as error:
        raise OrderError(f"policy {order}: no answer from {base}: {error}") from None
    if answer.status_code != 200:
        raise OrderError(
            f"policy {order}: the gateway answered {answer.status_code} {answer.text[:300]}"
        )
    if not answer.json()["applied"]:
        raise OrderError(f"policy {order}: an engine rejected it: {answer.text[:500]}")


async def order_of(client: httpx.AsyncClient, base: str) -> str:
    """Return the order that all engines have; "" if they differ or do not report it."""
    try:
        answer = await client.get(f"{base}/weft/state")
        found = {engine.get("policy") for engine in engines(answer.raise_for_status().json())}
    except (httpx.HTTPError, ValueError):
        return ""
    return str(found.pop() or "") if len(found) == 1 else ""


@asynccontextmanager
async def kept_order(client: httpx.AsyncClient, base: str) -> AsyncIterator[None]:
    """Restore the engines' order after the block. A failure is printed to stderr."""
    before = await order_of(client, base)
    try:
        yield
    finally:
        try:
            if not before:
                raise OrderError("the previous order is unknown")
            await set_order(client, base, before, reset_cache=False)
        except OrderError as error:
            print(f"the engines keep the last order: {error}", file=sys.stderr)
