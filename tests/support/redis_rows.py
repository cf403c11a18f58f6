"""Direct access to a process table's rows in Redis, for tests."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.waiting import DEADLINE_S
from weft_gateway.programs.redis_store import RedisStore

_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')


def store_of(table: Any) -> RedisStore:
    """Return the store of a RedisTable or a ResilientTable."""
    store: RedisStore = getattr(table, "_shared", table)._store
    return store


async def age_leases(table: Any, seconds: float) -> None:
    """Move the last renewal of every lease `seconds` into the past."""
    store = store_of(table)
    for member, score in await store.redis.zrange(store.keys.leases, 0, -1, withscores=True):
        await store.redis.zadd(store.keys.leases, {member: score - seconds})


class Monitor:
    """Commands that a server got from clients and from scripts."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._lines = self._socket.makefile("rb")
        self._socket.sendall(b"MONITOR\r\n")
        assert self._lines.readline().startswith(b"+OK")

    def until(self, marker: bytes) -> Iterator[tuple[bool, list[bytes]]]:
        """Return commands up to one with `marker`: whether a script sent it, and its words."""
        for line in self._lines:
            if marker in line:
                return
            yield b" lua] " in line, [_unescaped(word) for word in _WORD.findall(line)]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@contextmanager
def monitored(port: int) -> Iterator[Monitor]:
    """Open a monitor of the server on this port."""
    monitor = Monitor(port)
    try:
        yield monitor
    finally:
        monitor.close()


def _unescaped(word: bytes) -> bytes:
    return word.decode("unicode_escape").encode("latin-1")
