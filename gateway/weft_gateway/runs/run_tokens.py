"""The keys with which the processes of runs call their gateway."""

from __future__ import annotations

import secrets
from typing import Final

_BEGINNING: Final = "weft-run-"


class RunTokens:
    """A token is valid for the calls of one program of a tenant, until the end of its process."""

    def __init__(self) -> None:
        self._runs: dict[bytes, tuple[str, str]] = {}

    def issue(self, tenant: str, program: str) -> str:
        """Return a new token. program: of the calls; those to further replicas have a number after
        it.
        """
        token = f"{_BEGINNING}{secrets.token_urlsafe(32)}"
        self._runs[token.encode()] = tenant, program
        return token

    def end(self, token: str) -> None:
        """Forget a token."""
        self._runs.pop(token.encode(), None)

    def tenant(self, token: bytes, program: bytes) -> str | None:
        """Return the tenant of a token if it is valid for this program, None if not."""
        found = self._runs.get(token)
        if found is None:
            return None
        tenant, own = found
        name, _, number = program.decode("latin-1").partition("-")
        return tenant if name == own and (not number or number.isdecimal()) else None
