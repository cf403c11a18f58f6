"""HTTP clients of runs."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from functools import cache
from typing import Final

import httpx

# httpx accepts larger ones, and connecting to them then fails in other ways than usual.
MOST_PORT: Final = 65_535
# Runs limit the calls in flight themselves.
_NO_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=None)


def new_client(
    timeout: httpx.Timeout | None,
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    tls: bool = True,
) -> httpx.AsyncClient:
    """Return a client that ignores the proxies of the environment. tls: whether it needs the
    certificates, for https URLs.
    """
    verify = _tls() if tls else False
    return httpx.AsyncClient(
        verify=verify, timeout=timeout, headers=headers, limits=_NO_LIMITS, trust_env=False
    )


@cache
def _tls() -> ssl.SSLContext:
    """Return the context of all clients: each takes 20 ms to read the certificates."""
    return httpx.create_ssl_context(trust_env=False)
