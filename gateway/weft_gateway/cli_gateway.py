"""Requests of the command line to a running gateway."""

from __future__ import annotations

import os
from typing import Any, Final

_WITHIN_S: Final = 30.0


class GatewayError(Exception):
    """The gateway refuses a request or does not answer it. The message has one line."""


def ask(
    gateway: str,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    key: str = "WEFT_ADMIN_KEY",
) -> dict[str, Any]:
    """Return a gateway's answer. gateway: its base URL, with or without /v1. key: the variable with
    the key. Raises GatewayError.
    """
    import httpx

    secret = os.environ.get(key, "")
    if not (secret.isascii() and secret.isprintable()):
        raise GatewayError(f"{key} must be printable ASCII: a header carries it")
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    url = f"{gateway.rstrip('/').removesuffix('/v1')}{path}"
    try:
        answer = httpx.request(method, url, json=body, headers=headers, timeout=_WITHIN_S)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as failure:
        what = str(failure) or type(failure).__name__
        raise GatewayError(f"{gateway} cannot be reached: {what}") from None
    try:
        parsed = answer.json()
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        if answer.is_success:
            return parsed
        error = parsed.get("error")
        # A gateway names its errors. Engines number theirs.
        if isinstance(error, dict) and isinstance(error.get("code"), str):
            raise GatewayError(str(error.get("message")))
    raise GatewayError(f"{gateway} answers {answer.status_code}, as no gateway of Weft does")
