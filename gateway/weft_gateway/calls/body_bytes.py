"""Counts the bytes of all bodies that the process holds, and refuses those that do not fit.

Limits per request do not bound their sum. Bytes count as long as the object that holds the body
exists: the count is what memory has, in whatever way a call ends.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

from weft_gateway import errors
from weft_gateway.programs.identity import ANONYMOUS

# Smaller bodies do not count: the server reads that much ahead for each connection, and small calls
# continue while large ones are refused.
SMALL_BYTES: Final = 65_536
# One key may hold this part of all bytes. Without keys, all clients are one tenant.
_SHARE: Final = 4
# Memory of fewer bodies is not worth the milliseconds in which nothing else runs.
_TRIMMED: Final = 16 << 20


class BodyBytes:
    """The account of one process. total: bytes that are held. most: their limit."""

    def __init__(self, most: int) -> None:
        """most: limit of `total`. A body larger than that fits while nothing else is held."""
        self.total = 0
        self._peak = 0
        self.most = most
        self._by_tenant: dict[str, int] = {}

    def hold(self, tenant: str) -> HeldBytes:
        """Return what a tenant's request holds: nothing yet."""
        return HeldBytes(self, tenant)

    def add(self, tenant: str, size: int) -> None:
        """Count `size` further bytes, or fewer if negative. Raises ApiError if they do not fit."""
        own = self._by_tenant.get(tenant, 0)
        if size > 0:
            share = self.most if tenant == ANONYMOUS else self.most // _SHARE
            if own and own + size > share:
                raise errors.of("too_many_body_bytes_of_key")
            if self.total and self.total + size > self.most:
                raise errors.of("too_many_body_bytes")
        self.total += size
        self._peak = max(self._peak, self.total)
        if own + size:
            self._by_tenant[tenant] = own + size
        else:
            self._by_tenant.pop(tenant, None)

    def trim(self) -> None:
        """Return free memory to the system once most bodies are gone. Otherwise the C library keeps
        the memory of the largest load: small objects lie between its blocks.
        """
        if self._peak > _TRIMMED and self.total < self._peak // 4:
            self._peak = self.total
            with contextlib.suppress(OSError, AttributeError):  # Not glibc.
                ctypes.CDLL(None).malloc_trim(0)


class HeldBytes:
    """The bytes that one request holds, until this object ends. size: those that count."""

    __slots__ = ("_account", "_tenant", "size")

    def __init__(self, account: BodyBytes, tenant: str) -> None:
        self._account = account
        self._tenant = tenant
        self.size = 0

    def take(self, size: int) -> None:
        """Hold `size` bytes instead of those before. Raises ApiError 429 if the key has too many
        and 503 if the process has, without a change.
        """
        if size <= SMALL_BYTES:
            size = 0
        if size != self.size:
            self._account.add(self._tenant, size - self.size)
            self.size = size

    def __del__(self) -> None:
        self.take(0)
