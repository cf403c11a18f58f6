"""The integrity of a process table on Redis: rows against counts, indexes and leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from weft_gateway.model import Program
from weft_gateway.model.spending import Account, Reserve, reserving
from weft_gateway.programs import rows, rules
from weft_gateway.programs.redis_store import RedisStore

_BATCH: Final = 500
_LOOKS: Final = 3
# Messages of one kind of damage may be as many as the programs.
_MOST: Final = 100


async def violations(store: RedisStore) -> list[str]:
    """Return messages about violated invariants. Reads the whole table.

    Calls open and close between two reads, so differences between rows and indexes count only if
    several looks find the same ones.
    """
    certain, persisting = await _look(store)
    for _ in range(_LOOKS - 1):
        if not persisting:
            break
        certain, again = await _look(store)
        persisting &= again
    found = [*certain, *sorted(persisting)]
    more = len(found) - _MOST
    return [*found[:_MOST], f"and {more} more"] if more > 0 else found


async def _look(store: RedisStore) -> tuple[list[str], set[str]]:
    """Return the violated invariants within one row or between values that are read at once, and
    those between values that are read at different times.
    """
    differing: set[str] = set()
    programs: list[Program] = []
    active = [rows.key_of(raw) for raw in await store.members(store.keys.activity)]
    for first in range(0, len(active), _BATCH):
        keys = active[first : first + _BATCH]
        for key, program in zip(keys, await store.read(keys), strict=True):
            if program is None:
                differing.add(f"{key}: the activity index names a program without a row")
            else:
                programs.append(program)
    certain = [fault for program in programs for fault in rules.violations(program)]
    indexed = set(active)
    row, names, quiet = (store.keys.base + kind for kind in (b"p:", b"n:", b"i:"))
    named: dict[str, set[str]] = {}
    idle: dict[str, set[str]] = {}
    for raw in set(await store.every_key()):
        if raw.startswith(row) and rows.key_of(raw.removeprefix(row)) not in indexed:
            differing.add(f"{raw!r}: the row is missing from the activity index")
        for kind, listed in ((names, named), (quiet, idle)):
            if raw.startswith(kind):
                tenant = rows.decode(raw.removeprefix(kind))
                listed[tenant] = set(map(rows.decode, await store.members(raw)))
    # Counts that were deleted are counted again.
    await store.homes()
    at_once = await _at_once(store)
    leases, in_flight, work, indexed_homes, by_home, budgets, reserved = at_once[:7]
    held, totals, alive = at_once[7:]
    calls = {rows.leased(lease): rows.placed(raw) for lease, raw in leases.items()}
    certain += rules.miscounts(calls, _counts(in_flight), _counts(work))
    accounts = [rows.account(rows.decode(name), raw) for name, raw in budgets.items()]
    sums: dict[str, Account] = {}
    for lease, raw in reserved.items():
        claim, *names = raw.split(b"\n")
        for name in map(rows.decode, names):
            account = sums.get(name) or Account(name, 0.0, 0.0)
            sums[name] = reserving(account, Reserve(*map(int, claim.split())))
        if lease not in leases:
            certain.append(f"{lease!r}: a call that is not open reserves")
    certain += rules.misreserved({account.name: account for account in accounts}, sums)
    differing.update(rules.differences(programs, calls, named, idle))
    homes = {rows.key_of(raw): rows.decode(name) for raw, name in indexed_homes.items()}
    at = {program.key: program.home for program in programs}
    # Rows of an earlier release are indexed with their next long call.
    differing.update(
        f"{key}: the index of homes names {name!r}, and the row {at.get(key)!r}"
        for key, name in homes.items()
        if at.get(key) != name
    )
    if _counts(by_home) != Counter(homes.values()):
        certain.append("the number of programs by home differs from the index of homes")
    if set(held) != leases.keys():
        certain.append(f"leases differ from open calls: {sorted(set(held) ^ leases.keys())}")
    created, ended = (int(total or 0) for total in totals)
    if created - ended != alive:
        certain.append(f"{created} programs created, {ended} ended, {alive} alive")
    return certain, differing


async def _at_once(store: RedisStore) -> list[Any]:
    """Read the values that each change of the table keeps equal."""
    keys = store.keys
    async with store.reaching(), store.redis.pipeline(transaction=True) as pipe:
        for key in (
            keys.calls, keys.in_flight, keys.work, keys.homes, keys.home_counts, keys.budgets,
            keys.reserved,
        ):  # fmt: skip
            pipe.hgetall(key)
        pipe.zrange(keys.leases, 0, -1)
        pipe.hmget(keys.totals, ["created", "ended"])
        pipe.zcard(keys.activity)
        return await pipe.execute()


def _counts(raw: Mapping[bytes, bytes]) -> dict[str, int]:
    return {rows.decode(name): int(count) for name, count in raw.items()}
