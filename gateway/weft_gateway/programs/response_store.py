"""Stored answers of the Responses API: what a later call may refer to by an id.

An answer is stored with its own input and the name of the answer that it continues, so a chain of
answers contains each item once. Tenants cannot see each other's answers. The id of an answer
belongs to the first tenant that stored it, even if an engine issues the id again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from sys import getsizeof
from typing import Final

from weft_gateway.model import ProgramKey
from weft_gateway.model.record import record
from weft_gateway.policies.fair_lru import FairLRU

DEFAULT_LIMIT: Final = 536_870_912
DEFAULT_KEEP_S: Final = 86_400.0
# An answer that is used again becomes the latest of its tenant at most this often.
_RENEW_S: Final = 60.0
# Memory of an entry beside its texts, bytes: 330 to 500 of resident memory.
OVERHEAD_BYTES: Final = 512
# Begins the names of answers that one connection keeps for itself.
PRIVATE: Final = "\x02"


def is_owned(name: str) -> bool:
    """Whether `name` is the id of an answer, which one tenant owns, and not a session."""
    return name.startswith("resp_")


@record
class StoredResponse:
    """program: the id of the program whose call created the answer. thread: of that call, "" for
    the main one. used_s: Unix time when it was stored or last used. previous: the name of the
    answer that it continues, or "". replica: works or worked on it in the background, or "". items:
    its own input, as JSON items with commas between them. response: the JSON that the client got.

    An item of an answer has an entry, too: its `previous` names the answer.
    """

    program: str
    thread: str = ""
    used_s: float = 0.0
    previous: str = ""
    replica: str = ""
    items: bytes = b""
    response: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of its content."""
        return len(self.items) + len(self.response)


class Connection:
    """The answers that one connection keeps for itself, in this process, until it ends."""

    def __init__(self) -> None:
        self._prefix = f"{PRIVATE}{os.urandom(8).hex()}/"
        self.names: list[str] = []

    def name(self, response_id: str) -> str:
        """Return the name in the store of an answer or item with this id."""
        return self._prefix + response_id

    def keep(self, response_id: str) -> str:
        """Return the name like `name`, of one that is about to be stored."""
        self.names.append(self.name(response_id))
        return self.names[-1]


class ResponseStore:
    """Remembers stored answers in this process's memory.

    limit: bytes of all tenants; beyond it, the tenant with most bytes loses those used least
    recently. keep_s: lifetime of an entry after its last use, seconds.
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
        self, key: ProgramKey, name: str, answer: StoredResponse | None = None
    ) -> StoredResponse | None:
        """Record an answer in this process. answer: None for one of which only the program is
        known. Returns None, without a change, if another tenant owns the id.
        """
        owner = self._owners.get(name, key.tenant)
        if owner != key.tenant and self._known(owner, name) is not None:
            return None
        answer = replace(answer or StoredResponse(key.program), used_s=self._clock())
        self._keep(key.tenant, name, answer)
        return answer

    def root(self, tenant: str, link: str) -> str:
        """Return the program of a link of a chain, or the link itself if unknown here."""
        return self.place(tenant, link)[0]

    def place(self, tenant: str, link: str) -> tuple[str, str]:
        """Return the program like `root`, and the thread of the call that created the link ("" if
        unknown).
        """
        found = self._known(tenant, link)
        return (link, "") if found is None else (found.program, found.thread)

    def known(self, tenant: str, name: str) -> bool:
        """Whether this process knows an answer."""
        return self._known(tenant, name) is not None

    async def remember(self, key: ProgramKey, answers: Mapping[str, StoredResponse | None]) -> None:
        """Record answers by name, for all gateways on the same store."""
        for name, answer in answers.items():
            self.record(key, name, answer)

    async def find(self, tenant: str, name: str) -> StoredResponse | None:
        """Return a tenant's answer and cache it for `root`. None if it does not exist, has expired,
        or belongs to another tenant. Raises TableUnavailable if the store is away.
        """
        return self._known(tenant, name)

    async def chain(self, tenant: str, name: str, most_bytes: int) -> dict[str, StoredResponse]:
        """Return an answer and those that it continues by name, the last one first; fewer if they
        have more than `most_bytes`. Raises KeyError with the name of one that does not exist, and
        TableUnavailable.
        """
        found: dict[str, StoredResponse] = {}
        read: Mapping[str, StoredResponse] = {}
        size = 0
        while name and size <= most_bytes:
            answer = self._known(tenant, name) or read.get(name)
            if answer is None:
                read = await self._read(tenant, name, most_bytes)
                answer = read.get(name)
            # An engine that issues an id again could make a circle.
            if answer is None or name in found:
                raise KeyError(name)
            found[name] = answer
            size += answer.size
            name = answer.previous
        # The beginning of a chain stays the oldest part of it.
        for name in reversed(found):
            self._known(tenant, name)
        return found

    async def forget(self, tenant: str, name: str) -> None:
        """Forget an answer."""
        self._drop(tenant, name)

    async def flush(self) -> None:
        """Write the answers that could not reach the store. Raises TableUnavailable."""

    async def _read(self, tenant: str, name: str, most_bytes: int) -> Mapping[str, StoredResponse]:
        """Return an answer and those that it continues, up to about `most_bytes`, from elsewhere
        than this process's memory.
        """
        return {}

    def _known(self, tenant: str, name: str) -> StoredResponse | None:
        found = self._answers.get((tenant, name))
        if found is None:
            return None
        now = self._clock()
        if now - found.used_s > self._keep_s:
            self._drop(tenant, name)
            return None
        self._room.use(tenant, name)
        if now - found.used_s > _RENEW_S:
            found = self._answers[tenant, name] = replace(found, used_s=now)
            self._renewed(tenant, name)
        return found

    def _keep(self, tenant: str, name: str, answer: StoredResponse) -> None:
        self._answers[tenant, name] = answer
        if is_owned(name):
            self._owners[name] = tenant
        texts = (name, answer.program, answer.thread, answer.previous)
        size = answer.size + OVERHEAD_BYTES + sum(map(getsizeof, texts))
        for gone in self._room.put(tenant, name, size):
            del self._answers[gone]
            self._disown(*gone)
            self._gone(*gone)

    def _drop(self, tenant: str, name: str) -> None:
        if self._answers.pop((tenant, name), None) is not None:
            self._room.drop(tenant, name)
            self._disown(tenant, name)

    def _disown(self, tenant: str, name: str) -> None:
        if self._owners.get(name) == tenant:
            del self._owners[name]

    def _gone(self, tenant: str, name: str) -> None:
        """Called after the memory evicts this answer."""

    def _renewed(self, tenant: str, name: str) -> None:
        """Called after a use that other gateways should know."""
