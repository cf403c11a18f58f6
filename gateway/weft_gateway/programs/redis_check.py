"""The integrity of a process table on Redis: rows against counts, indexes and leases."""

from __future__ import annotations

from collections import Counter
from typing import Final

from weft_gateway.model import ProgramKey
from weft_gateway.programs import rows, rules
from weft_gateway.programs.redis_store import RedisStore

_BATCH: Final = 500


async def violations(store: RedisStore) -> list[str]:
    """Return one message per violated invariant. Exact while no call opens or closes. Reads the
    whole table.
    """
    found: list[str] = []
    threads: dict[bytes, bytes] = {}
    named: dict[str, set[str]] = {}
    idle: dict[str, set[str]] = {}
    active = [rows.key_of(raw) for raw in await store.members(store.keys.activity)]
    for first in range(0, len(active), _BATCH):
        keys = active[first : first + _BATCH]
        for key, program in zip(keys, await store.read(keys), strict=True):
            if program is None:
                found.append(f"{key}: the activity index names a program without a row")
                continue
            found += rules.violations(program)
            if not program.ephemeral:
                named.setdefault(key.tenant, set()).add(key.program)
                if not program.threads:
                    idle.setdefault(key.tenant, set()).add(key.program)
            for thread in program.threads:
                threads[rows.lease(key, thread.call)] = rows.encode(thread.replica)
    found += await _indexes(store, set(active), named, idle)
    calls = await store.hash(store.keys.calls)
    if calls != threads:
        found.append(f"open calls differ from threads: {sorted(calls.items() ^ threads.items())}")
    counts = {name: b"%d" % count for name, count in Counter(calls.values()).items()}
    kept = await store.hash(store.keys.in_flight)
    if kept != counts:
        found.append(f"in flight {kept}, but open calls give {counts}")
    held = set(await store.members(store.keys.leases))
    if held != calls.keys():
        found.append(f"leases differ from open calls: {sorted(held ^ calls.keys())}")
    programs = await store.counts()
    if programs.created - programs.ended != programs.alive:
        found.append(
            f"{programs.created} programs created, {programs.ended} ended, {programs.alive} alive"
        )
    return found


async def _indexes(
    store: RedisStore,
    active: set[ProgramKey],
    named: dict[str, set[str]],
    idle: dict[str, set[str]],
) -> list[str]:
    found = []
    row, names, quiet = (store.keys.base + kind for kind in (b"p:", b"n:", b"i:"))
    listed: dict[str, set[str]] = {}
    waiting: dict[str, set[str]] = {}
    for raw in await store.every_key():
        if raw.startswith(row) and rows.key_of(raw.removeprefix(row)) not in active:
            found.append(f"{raw!r}: the row is missing from the activity index")
        elif raw.startswith(names):
            ids = await store.members(raw)
            listed[rows.decode(raw.removeprefix(names))] = set(map(rows.decode, ids))
        elif raw.startswith(quiet):
            ids = await store.members(raw)
            waiting[rows.decode(raw.removeprefix(quiet))] = set(map(rows.decode, ids))
    if listed != named:
        found.append("the lists of names differ from the programs that have one")
    if waiting != idle:
        found.append("the lists of idle programs differ from those without a call")
    return found
