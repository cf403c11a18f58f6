"""The model behind a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from weft_bench.drive.client import Client

CHAT: Final = "/v1/chat/completions"
_DEFAULT_CONTEXT: Final = 4096


def session(name: str) -> str:
    """Return the path of a program's session."""
    return f"/v1/sessions/{quote(name, safe='')}"


async def served(client: Client) -> tuple[str, int]:
    """Return the name of the served model and its context in tokens.

    Raises ValueError if the gateway or engine serves no model.
    """
    try:
        card = (await client.get("/v1/models")).json()["data"][0]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{client.base_url} serves no model: {error}") from None
    return str(card["id"]), int(card.get("max_model_len") or _DEFAULT_CONTEXT)


async def count_tokens(
    client: Client, model: str, messages: Sequence[Mapping[str, Any]], *, program: str = ""
) -> float:
    """Return the prompt tokens of messages, by the engine's count.

    program: of the call, "" for none. Raises ValueError if the engine rejects the call.
    """
    body = {"model": model, "messages": messages, "max_tokens": 1}
    headers = {"x-weft-program": program} if program else {}
    answer = await client.post(CHAT, body, headers)
    return float(answer.json()["usage"]["prompt_tokens"])
