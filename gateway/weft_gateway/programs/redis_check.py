"""The integrity of a process table on Redis: rows against counts, indexes and leases."""

from __future__ import annotations

from collections import Counter
from typing import Final

from weft_gateway.model import Program
from weft_gateway.programs import rows, rules
from weft_gateway.programs.redis_store import RedisStore

_BATCH: Final = 500


async def violations(store: RedisStore) -> list[str]:
    """Return one message per violated invariant. Exact while no call opens or closes. Reads the
    whole table.
    """
    missing: list[str] = []
    programs: list[Program] = []
    active = [rows.key_of(raw) for raw in await store.members(store.keys.activity)]
    for first in range(0, len(active), _BATCH):
        keys = active[first : first + _BATCH]
        for key, program in zip(keys, await store.read(keys), strict=True):
            if program is None:
                missing.append(f"{key}: the activity index names a program without a row")
            else:
                programs.append(program)
    indexed = set(active)
    row, names, quiet = (store.keys.base + kind for kind in (b"p:", b"n:", b"i:"))
    named: dict[str, set[str]] = {}
    idle: dict[str, set[str]] = {}
    for raw in set(await store.every_key()):
        if raw.startswith(row) and rows.key_of(raw.removeprefix(row)) not in indexed:
            missing.append(f"{raw!r}: the row is missing from the activity index")
        for kind, listed in ((names, named), (quiet, idle)):
            if raw.startswith(kind):
                tenant = rows.decode(raw.removeprefix(kind))
                listed[tenant] = set(map(rows.decode, await store.members(raw)))
    leases = await store.hash(store.keys.calls)
    calls = {rows.leased(lease): rows.placed(raw) for lease, raw in leases.items()}
    in_flight, work = [
        {rows.decode(name): int(count) for name, count in (await store.hash(key)).items()}
        for key in (store.keys.in_flight, store.keys.work)
    ]
    found = [*missing, *rules.inconsistencies(programs, calls, in_flight, work, named, idle)]
    indexed_homes = await store.hash(store.keys.homes)
    homes = {rows.key_of(raw): rows.decode(name) for raw, name in indexed_homes.items()}
    # Rows of an earlier release are indexed with their next long call.
    if not homes.items() <= {program.key: program.home for program in programs}.items():
        found.append("the index of homes differs from the programs' homes")
    if await store.homes() != Counter(homes.values()):
        found.append("the number of programs by home differs from the index of homes")
    held = set(await store.members(store.keys.leases))
    if held != leases.keys():
        found.append(f"leases differ from open calls: {sorted(held ^ leases.keys())}")
    counts = await store.counts()
    if counts.created - counts.ended != counts.alive:
        found.append(
            f"{counts.created} programs created, {counts.ended} ended, {counts.alive} alive"
        )
    return found
