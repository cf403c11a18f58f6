"""Stored answers: the program of each answer and the replica that stores it (row 3 of the alias
table). Tenants cannot see each other's answers. The id of an answer belongs to the first tenant
that stored it, even if an engine issues the id again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from weft_gateway.model import ProgramKey
from weft_gateway.model.record import record
from weft_gateway.policies.fair_lru import FairLRU

DEFAULT_LIMIT: Final = 65_536
DEFAULT_KEEP_S: Final = 86_400.0


def is_owned(name: str) -> bool:
    """Whether `name` is the id of an answer, which one tenant owns, and not a session."""
    return name.startswith("resp_")


@record
class StoredResponse:
    """program: the id of the program whose call created the answer. replica: stores the answer, ""
    if unknown. stored_s: Unix time. thread: of that call, "" for the main one.
    """

    program: str
    replica: str
    stored_s: float
    thread: str = ""


class ResponseStore:
    """Remembers stored answers in this process's memory: per tenant, the most recently used.

    limit: answers of all tenants; beyond it, the tenant with most answers loses one. keep_s:
    lifetime of an entry, seconds.
    """

    def __init__(
        self,
        limit: int = DEFAULT_LIMIT,
        keep_s: float = DEFAULT_KEEP_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._room = FairLRU[str](limit)
        self._keep_s = keep_s
        self._clock = clock
        self._answers: dict[tuple[str, str], StoredResponse] = {}
        # The tenant of each answer's id. Other names, such as sessions, are scoped to the tenant.
        self._owners: dict[str, str] = {}

    def record(
        self, key: ProgramKey, response_id: str, replica: str = "", thread: str = ""
    ) -> StoredResponse | None:
        """Record an answer's program and replica in this process. Returns None, without a change,
        if another tenant owns the id.
        """
        owner = self._owners.get(response_id, key.tenant)
        if owner != key.tenant and self._known(owner, response_id) is not None:
            return None
        answer = StoredResponse(key.program, replica, self._clock(), thread)
        self._keep(key.tenant, response_id, answer)
        return answer

    def root(self, tenant: str, link: str) -> str:
        """Return the program of a link of a chain, or the link itself if unknown here."""
        found = self._known(tenant, link)
        return link if found is None else found.program

    def place(self, tenant: str, link: str) -> tuple[str, str]:
        """Return the program like `root`, and the thread of the call that created the link ("" if
        unknown).
        """
        found = self._known(tenant, link)
        return (link, "") if found is None else (found.program, found.thread)

    async def remember(
        self, key: ProgramKey, response_id: str, replica: str, thread: str = ""
    ) -> None:
        """Record an answer for all gateways on the same store."""
        self.record(key, response_id, replica, thread)

    async def find(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a tenant's answer and cache it for `root`. None if it does not exist, has expired,
        or belongs to another tenant. Raises TableUnavailable if the store is away.
        """
        return self._known(tenant, response_id)

    def stored_at(self) -> Counter[str]:
        """Return the number of answers that this process knows, by replica."""
        return Counter(answer.replica for answer in self._answers.values() if answer.replica)

    async def forget(self, tenant: str, response_id: str) -> None:
        """Forget an answer."""
        self._drop(tenant, response_id)

    async def flush(self) -> None:
        """Write the answers that could not reach the store. Raises TableUnavailable."""

    def _known(self, tenant: str, response_id: str) -> StoredResponse | None:
        found = self._answers.get((tenant, response_id))
        if found is None:
            return None
        if self._clock() - found.stored_s > self._keep_s:
            self._drop(tenant, response_id)
            return None
        self._room.use(tenant, response_id)
        return found

    def _keep(self, tenant: str, response_id: str, answer: StoredResponse) -> None:
        self._answers[tenant, response_id] = answer
        if is_owned(response_id):
            self._owners[response_id] = tenant
        gone = self._room.put(tenant, response_id)
        if gone is not None:
            del self._answers[gone]
            self._disown(*gone)
            self._gone(*gone)

    def _drop(self, tenant: str, response_id: str) -> None:
        if self._answers.pop((tenant, response_id), None) is not None:
            self._room.drop(tenant, response_id)
            self._disown(tenant, response_id)

    def _disown(self, tenant: str, response_id: str) -> None:
        if self._owners.get(response_id) == tenant:
            del self._owners[response_id]

    def _gone(self, tenant: str, response_id: str) -> None:
        """Called after the memory cache evicts this answer."""
