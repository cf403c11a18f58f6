"""Keeps transcripts, and finds the one that a body begins with. Without I/O."""

from __future__ import annotations

from collections.abc import Sequence

from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU
from weft_gateway.transcripts import grid
from weft_gateway.transcripts.reading import Reading, ends_there
from weft_gateway.transcripts.transcript import Known, Transcript

# A transcript is found by its last digest, and by some before: of branches and edited histories.
_BACK = (1, 2, 4, 8, 16, 32)
# Transcripts with one beginning that are compared with a body, the latest ones.
_MOST_ALIKE = 8


class Transcripts:
    """The transcripts of one process. limit: bytes of all tenants; beyond it, the tenant with most
    bytes loses those used least recently; 0: none are kept. No tenant finds another's.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._room = FairLRU[Transcript](limit)
        # By tenant, and by the digest of a beginning, the latest ones last.
        self._by_digest: dict[str, dict[int, list[Transcript]]] = {}
        self._digests: dict[Transcript, tuple[int, ...]] = {}
        self._of_program: dict[ProgramKey, dict[Transcript, None]] = {}

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def total(self) -> int:
        """Bytes that are held."""
        return len(self._room)

    def find(self, tenant: str, raw: bytes) -> tuple[Sequence[int], Known | None]:
        """Return the digests of a body's beginnings, and the messages that it has in common with an
        earlier one of this tenant.
        """
        if len(raw) < grid.LEAST_BYTES or not self._limit:
            return (), None
        digests = grid.digests(raw)
        there = self._by_digest.get(tenant)
        if there is not None:
            for number in range(len(digests) - 1, -1, -1):
                found = there.get(digests[number])
                if found:
                    covered = grid.position(number)
                    count, best = max(
                        ((one.same(raw, covered), at) for at, one in enumerate(found)),
                    )
                    self._room.use(tenant, found[best])
                    if count and ends_there(raw, found[best], count):
                        # The last message of a body is always read.
                        count -= 1
                    return digests, Known(found[best], count, raw) if count else None
        return digests, None

    def keep(self, reading: Reading, transcript: Transcript) -> None:
        """Keep the transcript of a body that was read. It replaces the one that it continues."""
        known, key = reading.known, transcript.key
        tenant = key.tenant
        if known is not None and (
            known.of is transcript or (known.of.key == key and known.is_near)
        ):
            self._drop(tenant, known.of)
        last = grid.reach(transcript.ends[-1])
        digests = tuple([reading.digests[last - back] for back in _BACK if back <= last])
        if not digests:
            return
        there = self._by_digest.setdefault(tenant, {})
        for digest in digests:
            alike = there.setdefault(digest, [])
            alike.append(transcript)
            del alike[:-_MOST_ALIKE]
        self._digests[transcript] = digests
        self._of_program.setdefault(key, {})[transcript] = None
        for owner, gone in self._room.put(tenant, transcript, transcript.size):
            self._remove(owner, gone)

    def forget(self, key: ProgramKey) -> None:
        """Forget the transcripts of a program that has ended."""
        for transcript in [*self._of_program.get(key, ())]:
            self._drop(key.tenant, transcript)

    def _drop(self, tenant: str, transcript: Transcript) -> None:
        if transcript in self._digests:
            self._room.drop(tenant, transcript)
            self._remove(tenant, transcript)

    def _remove(self, tenant: str, transcript: Transcript) -> None:
        there = self._by_digest[tenant]
        for digest in self._digests.pop(transcript, ()):
            alike = there.get(digest, [])
            if transcript in alike:
                alike.remove(transcript)
            if not alike:
                there.pop(digest, None)
        if not there:
            del self._by_digest[tenant]
        own = self._of_program.get(transcript.key)
        if own is not None:
            own.pop(transcript, None)
            if not own:
                del self._of_program[transcript.key]
