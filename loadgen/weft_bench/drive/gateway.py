"""The connection of a bench to a gateway, and the model behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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


async def count_tokens(
    client: httpx.AsyncClient,
    base: str,
    model: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    program: str = "",
) -> float:
    """Return the prompt tokens of messages, by the engine's count.

    base: URL of a gateway or an engine. program: of the call, "" for none. Raises ValueError if it
    rejects the call.
    """
    body = {"model": model, "messages": messages, "max_tokens": 1}
    headers = {"x-weft-program": program} if program else {}
    answer = await client.post(f"{base}/v1/chat/completions", json=body, headers=headers)
    if answer.status_code != 200:
        raise ValueError(f"the engine rejected a probe: {answer.text[:300]}")
    return float(answer.json()["usage"]["prompt_tokens"])
