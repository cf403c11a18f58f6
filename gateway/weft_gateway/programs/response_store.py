"""Stored answers: which program each belongs to, and which replica keeps it (row 3 of the alias
table). What a tenant has stored is not there for another one: the id of an answer belongs to the
tenant that had it first, also where an engine gives it to another one again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from weft_gateway.model import ProgramKey
from weft_gateway.model.record import record
from weft_gateway.policies.fair_lru import FairLRU

DEFAULT_LIMIT: Final = 65_536
DEFAULT_KEEP_S: Final = 86_400.0


def is_owned(name: str) -> bool:
    """Whether `name` is the id of an answer, which one tenant has, and not a session's."""
    return name.startswith("resp_")


@record
class StoredResponse:
    """program: the id of the program whose call made the answer. replica: the one that stores it,
    "" where that is not known. stored_s: Unix time. thread: of that call, "" for the main one."""

    program: str
    replica: str
    stored_s: float
    thread: str = ""


class ResponseStore:
    """Remembers stored answers, of each tenant those used latest, in this process's memory.

    limit: of answers; the tenant that has most gives way to others. keep_s: how long one is
    remembered, seconds.
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
        # The tenant of each answer's id. Other names, as those of sessions, are each tenant's own.
        self._owners: dict[str, str] = {}

    def record(
        self, key: ProgramKey, response_id: str, replica: str = "", thread: str = ""
    ) -> StoredResponse | None:
        """The answer with this id belongs to this program and is stored there. Known here only.
        None, and nothing has changed, where another tenant has an answer with this id."""
        owner = self._owners.get(response_id, key.tenant)
        if owner != key.tenant and self._known(owner, response_id) is not None:
            return None
        answer = StoredResponse(key.program, replica, self._clock(), thread)
        self._keep(key.tenant, response_id, answer)
        return answer

    def root(self, tenant: str, link: str) -> str:
        """The program of a link of a chain; the link itself where it is not known here."""
        found = self._known(tenant, link)
        return link if found is None else found.program

    def place(self, tenant: str, link: str) -> tuple[str, str]:
        """As `root`, with the thread of the call that made the link, "" where it is not known."""
        found = self._known(tenant, link)
        return (link, "") if found is None else (found.program, found.thread)

    async def remember(
        self, key: ProgramKey, response_id: str, replica: str, thread: str = ""
    ) -> None:
        """As `record`, for every gateway on the same store."""
        self.record(key, response_id, replica, thread)

    async def find(self, tenant: str, response_id: str) -> StoredResponse | None:
        """What is known of a tenant's answer; `root` knows it then, too. None if it does not exist,
        has been forgotten, or is another tenant's. TableUnavailable if that cannot be told."""
        return self._known(tenant, response_id)

    async def forget(self, tenant: str, response_id: str) -> None:
        """The answer is stored no longer."""
        self._drop(tenant, response_id)

    async def flush(self) -> None:
        """Write what could not be written to the store. TableUnavailable."""

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
        """There was no room any more for what was known of this answer."""
