"""Handles that clients hold of a program's prefills: their protocol, and this process's memory.

What a handle stands for is a few named texts, none of them named `end`. Two implementations,
`memory` and `redis_handles`, pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU

PER_TENANT: Final = 256
IN_ALL: Final = 8192
# So long after its time a handle is still there to be dropped: who made it learns by that whether
# anybody used it up.
GRACE_S: Final = 60.0

Fields = Mapping[str, str]


class HandleStore(Protocol):
    """Handles by tenant and id. Instants are Unix times, seconds. Where a shared store is away, it
    is what this gateway knows that counts, and nothing raises but `find`."""

    def __len__(self) -> int:
        """Handles that this process knows by itself."""
        ...

    async def begin(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> bool:
        """A new handle of a program. False, and nothing has changed, where its tenant has as many
        as it may. Where all tenants together have as many as they may, the tenant that has most
        loses one of its oldest; that may be this tenant."""
        ...

    async def update(self, key: ProgramKey, handle: str, fields: Fields) -> bool:
        """Other texts for these names. False where the handle is not there any more."""
        ...

    async def find(self, tenant: str, handle: str, now_s: float) -> Fields | None:
        """A tenant's handle, None where there is none of his whose time is not over.
        TableUnavailable where that cannot be told now."""
        ...

    async def of_program(self, key: ProgramKey, now_s: float) -> Sequence[Fields]:
        """A program's handles whose time is not over, the first to expire first."""
        ...

    async def drop(self, key: ProgramKey, handle: str) -> bool:
        """Forget a handle. Whether it was there: of all who drop it, one is told so."""
        ...

    async def flush(self, now_s: float) -> None:
        """Write what could not be written to a shared store. TableUnavailable."""
        ...


class MemoryHandles:
    """See HandleStore."""

    def __init__(self, per_tenant: int = PER_TENANT, in_all: int = IN_ALL) -> None:
        self._per_tenant = per_tenant
        self._in_all = in_all
        self._room = FairLRU[str](in_all)
        # By tenant: program, texts and end of each handle.
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
        """See HandleStore. Memory is always there."""

    def known(self, tenant: str, handle: str) -> tuple[Fields, float] | None:
        """A handle's texts and its end, whether that is over or not."""
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
