"""Handles that clients hold for prefills of a program: the protocol, and the implementation in
memory.

A handle maps names to texts; the name `end` is reserved. Two implementations, `memory` and
`redis_handles`, pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU

PER_TENANT: Final = 256
IN_ALL: Final = 8192
# Expired handles are kept for this time, seconds. The client that made one can still drop it and
# learns whether it was used.
GRACE_S: Final = 60.0

Fields = Mapping[str, str]


class HandleStore(Protocol):
    """Handles by tenant and id. Times are Unix times in seconds. While a shared store is away, this
    gateway's own data is used, and only `find` raises.
    """

    def __len__(self) -> int:
        """Handles in this process's memory."""
        ...

    async def begin(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> bool:
        """Add a handle to a program. Returns False, without a change, if the tenant is at its
        limit. If all tenants together are at the limit, the tenant with most handles loses one of
        its oldest; this can be the same tenant.
        """
        ...

    async def update(self, key: ProgramKey, handle: str, fields: Fields) -> bool:
        """Replace the texts of these names. Returns False if the handle does not exist."""
        ...

    async def find(self, tenant: str, handle: str, now_s: float) -> Fields | None:
        """Return a tenant's handle, None if no unexpired one exists. Raises TableUnavailable if the
        store is away and this gateway does not have the handle.
        """
        ...

    async def of_program(self, key: ProgramKey, now_s: float) -> Sequence[Fields]:
        """Return a program's unexpired handles, first to expire first."""
        ...

    async def drop(self, key: ProgramKey, handle: str) -> bool:
        """Remove a handle. Returns whether it existed; of concurrent callers, exactly one gets
        True.
        """
        ...

    async def flush(self, now_s: float) -> None:
        """Write the changes that could not reach the shared store. Raises TableUnavailable."""
        ...


class MemoryHandles:
    """See HandleStore."""

    def __init__(self, per_tenant: int = PER_TENANT, in_all: int = IN_ALL) -> None:
        self._per_tenant = per_tenant
        self._in_all = in_all
        self._room = FairLRU[str](in_all)
        # By tenant: program, texts and expiry of each handle.
        self._of: dict[str, dict[str, tuple[str, dict[str, str], float]]] = {}

    def __len__(self) -> int:
        return len(self._room)

    async def begin(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> bool:
        """See HandleStore."""
        known = self._of.get(key.tenant, {})
        if handle not in known:
            if len(known) >= self._per_tenant or len(self) >= self._in_all:
                self._forget_ended(now_s)
            if len(self._of.get(key.tenant, ())) >= self._per_tenant:
                return False
        self._of.setdefault(key.tenant, {})[handle] = key.program, dict(fields), expires_s
        gone = self._room.put(key.tenant, handle)
        if gone is not None:
            self._forget(*gone)
        return True

    async def update(self, key: ProgramKey, handle: str, fields: Fields) -> bool:
        """See HandleStore."""
        found = self._of.get(key.tenant, {}).get(handle)
        if found is not None:
            found[1].update(fields)
        return found is not None

    async def find(self, tenant: str, handle: str, now_s: float) -> Fields | None:
        """See HandleStore."""
        _, fields, expires_s = self._of.get(tenant, {}).get(handle, ("", None, 0.0))
        return fields if expires_s > now_s else None

    async def of_program(self, key: ProgramKey, now_s: float) -> Sequence[Fields]:
        """See HandleStore."""
        found = [
            (expires_s, fields)
            for program, fields, expires_s in self._of.get(key.tenant, {}).values()
            if program == key.program and expires_s > now_s
        ]
        return [fields for _, fields in sorted(found, key=lambda each: each[0])]

    async def drop(self, key: ProgramKey, handle: str) -> bool:
        """See HandleStore."""
        there = handle in self._of.get(key.tenant, ())
        if there:
            self._room.drop(key.tenant, handle)
            self._forget(key.tenant, handle)
        return there

    async def flush(self, now_s: float) -> None:
        """See HandleStore. Memory is always available."""

    def known(self, tenant: str, handle: str) -> tuple[Fields, float] | None:
        """Return a handle's texts and its expiry, even if it has expired."""
        found = self._of.get(tenant, {}).get(handle)
        return None if found is None else found[1:]

    def _forget(self, tenant: str, handle: str) -> None:
        known = self._of[tenant]
        del known[handle]
        if not known:
            del self._of[tenant]

    def _forget_ended(self, now_s: float) -> None:
        ended = [
            (tenant, handle)
            for tenant, known in self._of.items()
            for handle, (_, _, end_s) in known.items()
            if end_s <= now_s
        ]
        for tenant, handle in ended:
            self._room.drop(tenant, handle)
            self._forget(tenant, handle)
