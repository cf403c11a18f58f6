"""Lineage on Redis: what one gateway has seen, the others know. Scripts in
`gateway/weft_gateway/programs/lua`, one round trip each.

| key (after the prefix) | type | holds |
|---|---|---|
| marks | hash | TENANT/FINGERPRINT to marks, newest first, a line each |
| marks_used | sorted set | the same by the time of their last use |
| folds | hash | TENANT/PROGRAM to what a folded program is part of |
| folds_used | sorted set | the same by the time of their last use |

These four keys expire when no gateway writes, and the scripts declare each key that they touch.
Where Redis cannot be reached, what this process has seen is used alone: a call never fails for its
lineage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from weft_gateway.programs.lineage.marks import Entry, Known, Mark, merged
from weft_gateway.programs.lineage.memory import MemoryLineage
from weft_gateway.programs.lineage.store import KEEP_S, MAX_MARKS
from weft_gateway.programs.rows import encode

# Fingerprints that Redis is asked for, of those that come first.
MAX_ASKED: Final = 512
DEFAULT_LIMIT: Final = 1_000_000
# Of folded programs as many as of fingerprints, divided by this.
_MARKS_A_FOLD: Final = 10
# A call waits no longer for its lineage, and so long nobody asks again where there was no answer.
_TIMEOUT_S: Final = 0.25
_PAUSE_S: Final = 2.0
_CONNECTIONS: Final = 16
_LOG: Final = logging.getLogger(__name__)


class RedisLineage:
    """See LineageStore. url: redis://, rediss:// or unix://. prefix: keeps stores apart. limit:
    fingerprints in all; beyond it those that were used longest ago go. keep_s: seconds, whole ones
    at least. Names of programs and threads are without spaces."""

    shared = True

    def __init__(
        self, url: str, prefix: str = "weft", limit: int = DEFAULT_LIMIT, keep_s: float = KEEP_S
    ) -> None:
        self._redis: Redis = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        # One hash slot with the process table of that prefix, and none of its keys.
        base = b"{" + encode(prefix) + b"}lineage:"
        self._keys = [base + name for name in (b"marks", b"marks_used", b"folds", b"folds_used")]
        self._limit = limit
        self._keep_s = max(1, int(keep_s))
        self._local = MemoryLineage(keep_s=keep_s)
        self._silent_until_s = 0.0
        self._turn = asyncio.Semaphore(_CONNECTIONS)
        lua = files("weft_gateway.programs") / "lua"
        self._get, self._put = (
            self._redis.register_script((lua / f"lineage_{name}.lua").read_text())
            for name in ("get", "put")
        )

    async def get_many(self, tenant: str, fingerprints: Sequence[int], now_s: float) -> Known:
        """See LineageStore."""
        local = await self._local.get_many(tenant, fingerprints, now_s)
        asked = fingerprints[:MAX_ASKED]
        if not asked or now_s < self._silent_until_s:
            return local
        arguments = [
            _field(tenant, b""),
            self._keep_s,
            b"".join([b"%016x" % fingerprint for fingerprint in asked]),
        ]
        reply = await self._run(self._get, arguments, now_s)
        return local if reply is None else _joined(local, _read(reply, asked))

    async def put(
        self,
        tenant: str,
        entries: Sequence[Entry],
        folds: Sequence[tuple[str, str]],
        now_s: float,
    ) -> None:
        """See LineageStore."""
        await self._local.put(tenant, entries, folds, now_s)
        if now_s < self._silent_until_s or not (entries or folds):
            return
        most_folds = max(1, self._limit // _MARKS_A_FOLD)
        arguments: list[Any] = [self._keep_s, MAX_MARKS, self._limit, most_folds, len(entries)]
        for entry in entries:
            arguments += (_field(tenant, b"%016x" % entry.fingerprint), _line(entry.mark))
        for program, into in folds:
            arguments += (_field(tenant, encode(program)), encode(into))
        await self._run(self._put, arguments, now_s)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._redis.aclose()

    async def _run(self, script: AsyncScript, arguments: list[Any], now_s: float) -> Any:
        async with self._turn:
            if now_s < self._silent_until_s:  # It fell silent while this call waited.
                return None
            try:
                return await script(keys=self._keys, args=arguments)
            except (RedisError, OSError) as error:
                self._silent_until_s = now_s + _PAUSE_S
                _LOG.warning("no lineage from Redis, but from this gateway alone: %s", error)
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


def _joined(local: Known, shared: Known) -> Known:
    """Both; where Redis knows of a fingerprint or a program, it knows better."""
    if not local.marks:
        return shared
    told = {mark.program for marks in shared.marks.values() for mark in marks}
    folded = {program: into for program, into in local.folded.items() if program not in told}
    return Known({**local.marks, **shared.marks}, {**folded, **shared.folded})
