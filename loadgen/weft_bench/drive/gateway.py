"""The connection of a bench to a gateway, and the model behind it."""

from __future__ import annotations

from typing import Final

import httpx

_DEFAULT_CONTEXT: Final = 4096


def connect(call_s: float = 1800.0) -> httpx.AsyncClient:
    """Return a client for any number of parallel calls. call_s: time limit of a call."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(timeout=call_s, limits=limits, trust_env=False)


async def served(client: httpx.AsyncClient, base: str) -> tuple[str, int]:
    """Return the name of the served model and its context in tokens.

    Raises ValueError if the gateway or engine at `base` serves no model.
    """
    try:
        card = (await client.get(f"{base}/v1/models")).json()["data"][0]
    except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{base} serves no model: {error}") from None
    return str(card["id"]), int(card.get("max_model_len") or _DEFAULT_CONTEXT)
