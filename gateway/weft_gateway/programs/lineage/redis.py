"""Lineage on Redis, shared by all gateways. Scripts in `gateway/weft_gateway/programs/lua`, one
round trip each.

| key (after the prefix) | type | value |
|---|---|---|
| marks | hash | TENANT/FINGERPRINT to marks, newest first, one per line |
| marks_used | sorted set | TENANT/FINGERPRINT by the time of its last use |
| folds | hash | TENANT/PROGRAM to the program it is folded into |
| folds_used | sorted set | TENANT/PROGRAM by the time of its last use |

These four keys expire when no gateway writes, and the scripts declare each key that they access.
While Redis is away, what this process has stored is used: lineage never fails a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.commands.core import AsyncScript

from weft_gateway.programs.lineage.marks import Entry, Known, Mark, merged
from weft_gateway.programs.lineage.memory import KEEP_S, MAX_MARKS, MemoryLineage
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.rows import encode
from weft_gateway.programs.table import TableUnavailable

# Maximum fingerprints per lookup on Redis; the first ones are used.
MAX_ASKED: Final = 512
DEFAULT_LIMIT: Final = 1_000_000
# The limit of folded programs is the limit of fingerprints divided by this.
_MARKS_A_FOLD: Final = 10


class RedisLineage(MemoryLineage):
    """See MemoryLineage. limit: fingerprints on Redis; above it the least recently used are
    evicted. keep_s: seconds, rounded down there, at least 1. Names of programs and threads contain
    no spaces.
    """

    def __init__(self, link: RedisLink, limit: int = DEFAULT_LIMIT, keep_s: float = KEEP_S) -> None:
        super().__init__(keep_s=keep_s)
        self._link = link
        base = link.keys.base.removesuffix(b":") + b"lineage:"
        self._keys = [base + name for name in (b"marks", b"marks_used", b"folds", b"folds_used")]
        self._shared_limit = limit
        self._shared_keep_s = max(1, int(keep_s))
        self._get, self._put = link.script("lineage_get"), link.script("lineage_put")

    async def get_many(self, tenant: str, fingerprints: Sequence[int], now_s: float) -> Known:
        """See MemoryLineage."""
        asked = fingerprints[:MAX_ASKED]
        if not asked:
            return Known({}, {})
        arguments = [
            _field(tenant, b""),
            self._shared_keep_s,
            b"".join([b"%016x" % fingerprint for fingerprint in asked]),
        ]
        reply = await self._run(self._get, arguments)
        if reply is None:
            return await super().get_many(tenant, fingerprints, now_s)
        return _read(reply, asked)

    async def put(
        self,
        tenant: str,
        entries: Sequence[Entry],
        folds: Sequence[tuple[str, str]],
        now_s: float,
    ) -> None:
        """See MemoryLineage."""
        await super().put(tenant, entries, folds, now_s)
        if not (entries or folds):
            return
        limit, keep_s = self._shared_limit, self._shared_keep_s
        most_folds = max(1, limit // _MARKS_A_FOLD)
        arguments: list[Any] = [keep_s, MAX_MARKS, limit, most_folds, len(entries)]
        for entry in entries:
            arguments += (_field(tenant, b"%016x" % entry.fingerprint), _line(entry.mark))
        for program, into in folds:
            arguments += (_field(tenant, encode(program)), encode(into))
        await self._run(self._put, arguments)

    async def _run(self, script: AsyncScript, arguments: list[Any]) -> Any:
        try:
            async with self._link.reaching():
                return await script(keys=self._keys, args=arguments)
        except TableUnavailable:
            return None


def _field(tenant: str, name: bytes) -> bytes:
    return encode(tenant) + b"/" + name


def _line(mark: Mark) -> bytes:
    return encode(
        f"{mark.state} {mark.at_s:.3f} {mark.length} {mark.tail:x} {mark.thread} {mark.program}"
    )


def _read(reply: bytes, asked: Sequence[int]) -> Known:
    marks: dict[int, list[Mark]] = {}
    folded = {}
    for line in reply.decode("utf-8", "surrogatepass").splitlines():
        first, *rest = line.split(" ")
        if first == "f":
            folded[rest[0]] = rest[1]
        else:
            state, at_s, length, tail, thread, program = rest
            marks.setdefault(asked[int(first) - 1], []).append(
                Mark(program, thread, int(state), float(at_s), int(length), int(tail, 16))
            )
    return Known({key: merged(found) for key, found in marks.items()}, folded)
