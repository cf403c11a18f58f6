"""The protocol of the fingerprint store, shared by all gateways on one store.

Two implementations, `memory` and `redis`, pass one contract suite. Stored data is a hint: the
oldest entries may be evicted at any time, and a call without matches starts a new program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft_gateway.programs.lineage.marks import Entry, Known

# Maximum marks per fingerprint; the newest are kept.
MAX_MARKS: Final = 16
# Lifetime of unused entries, seconds.
KEEP_S: Final = 3600.0


class LineageStore(Protocol):
    """Marks by tenant and fingerprint."""

    async def get_many(self, tenant: str, fingerprints: Sequence[int], now_s: float) -> Known:
        """Return the marks and folds of these fingerprints, in one round trip. Unknown ones are
        omitted.
        """
        ...

    async def put(
        self,
        tenant: str,
        entries: Sequence[Entry],
        folds: Sequence[tuple[str, str]],
        now_s: float,
    ) -> None:
        """Add marks and folds, in one round trip. A mark merges with an earlier one of its thread.
        folds: a program and the program it is part of, "" to unfold it.
        """
        ...
