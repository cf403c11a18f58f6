"""The process table on Redis, shared by many gateways. Each operation is one script in `lua/` and
one round trip.

Redis runs scripts one at a time, which makes each change atomic. Requires Redis 5 or newer (or
Valkey) with `maxmemory-policy noeviction`: an evicted row would lose open calls. See `rows` for the
keys. They share one hash slot, and every script declares all keys that it accesses.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Final

from weft_gateway.model import (
    Closing,
    EndedProgram,
    Opened,
    Opening,
    Outcome,
    Program,
    ProgramAttribute,
    ProgramCounts,
    ProgramKey,
)
from weft_gateway.model.slo import Ask
from weft_gateway.model.spending import Account, Changes
from weft_gateway.model.usage import Payer, Used
from weft_gateway.programs import rows, rules
from weft_gateway.programs.redis_check import violations
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.redis_store import ClosedRow, Counts, RedisStore
from weft_gateway.programs.table import TableUnavailable

# Programs whose last seen state `peek` can return.
_SEEN: Final = 16_384
_BATCH: Final = 500
# Lease of a call, seconds. Four times the renewal interval.
LEASE_S: Final = 120.0
TIMEOUT_S: Final = 1.0


class RedisTable:
    """See ProcessTable. `url`: redis://, rediss:// or unix://. `prefix` separates tables.

    Each call holds a lease, which `expire` renews for the calls of this gateway. If a gateway dies,
    or the reply to an opening is lost, the lease runs out after `lease_s` seconds. The next
    `expire` of any gateway then closes the call as aborted. timeout_s: reply timeout, seconds.
    per_tenant: limit of named programs per tenant.
    """

    local: Final = False

    def __init__(
        self,
        url: str,
        prefix: str = "weft",
        lease_s: float = LEASE_S,
        timeout_s: float = TIMEOUT_S,
        per_tenant: int = rules.MAX_PER_TENANT,
    ) -> None:
        self._store = RedisStore(url, prefix, timeout_s, per_tenant)
        self._lease_s = lease_s
        # No lease runs out before this time, because an outage may have prevented renewals. Redis
        # time.
        self._grace_until_s = 0.0
        self._leases: set[bytes] = set()
        self._timeout_s = timeout_s
        self._counts = Counts(0.0, {}, {})
        # Openings without a reply, and their predicted costs, by replica: calls that arrive at the
        # same time must see each other.
        self._opening: Counter[str] = Counter()
        self._opening_work: Counter[str] = Counter()
        self._seen: OrderedDict[ProgramKey, Program] = OrderedDict()
        # The accounts of keys and classes, as last seen.
        self._accounts: dict[str, Account] = {}

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable. If Redis ran the script and the reply was lost, this raises, and the
        call's lease runs out.
        """
        expected = self._expected(opening)
        cost = opening.costs.get(expected, 0)
        self._opening[expected] += 1
        self._opening_work[expected] += cost
        try:
            replica, created, program, counts, over, accounts = await self._store.open(opening)
        finally:
            self._opening[expected] -= 1
            self._opening_work[expected] -= cost
            if not self._opening[expected]:
                del self._opening[expected], self._opening_work[expected]
        self._leases.add(rows.lease(opening.key, opening.call))
        self._counted(counts)
        self._saw(program)
        for account in accounts:
            self._accounts[account.name] = account
        if over:
            await self._end_idle(over)
        return Opened(program, replica, created, accounts=accounts)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        # Before the round trip: a call whose closing fails must not be renewed forever.
        self._leases.discard(rows.lease(closing.key, closing.call))
        return self._closed(await self._store.close(closing))

    async def start(
        self, key: ProgramKey, now_s: float, ask: Ask | None = None
    ) -> tuple[Program, bool]:
        """See ProcessTable."""
        program, created, over = await self._store.start(key, now_s, ask)
        self._saw(program)
        if over:
            await self._end_idle(over)
        return program, created

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """See ProcessTable."""
        program = await self._store.end(key)
        if program is None:
            self._seen.pop(key, None)
        else:
            self._saw(program)
        return program

    async def set_attribute(
        self, key: ProgramKey, attribute: ProgramAttribute, now_s: float
    ) -> Program | None:
        """See ProcessTable."""
        rules.check_attribute(attribute)
        program, over = await self._store.set_attribute(key, attribute, now_s)
        if program is not None:
            self._saw(program)
        if over:
            await self._end_idle(over)
        return program

    async def set_budget(self, key: ProgramKey, changes: Changes, now_s: float) -> Program | None:
        """See ProcessTable."""
        program = await self._store.set_budget(key, changes)
        if program is not None:
            # The counts of calls have not changed, so `_saw` takes it.
            self._saw(program)
        return program

    async def get(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        (program,) = await self._store.read([key])
        if program is None:
            self._seen.pop(key, None)
        else:
            self._saw(program)
        return program

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """See ProcessTable."""
        found = await self._store.read(await self._store.names(tenant, after, limit))
        return [program for program in found if program is not None]

    async def usage(self, day: str, tenant: str = "") -> Mapping[Payer, Used]:
        """See ProcessTable."""
        return await self._store.usage(day, tenant)

    async def charge(self, day: str, rows: Mapping[Payer, Used], name: str) -> None:
        """Add usage to a day, once. name: of this addition, so that it can be repeated."""
        await self._store.charge(day, rows, name)

    def peek(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        return self._seen.get(key)

    def in_flight(self) -> Mapping[str, int]:
        """See ProcessTable. As of the last reply, with the calls that open now."""
        return _sum(self._counts.in_flight, self._opening)

    def work(self) -> Mapping[str, int]:
        """See ProcessTable. As of the last reply, with the calls that open now."""
        return _sum(self._counts.work, self._opening_work)

    async def count(self) -> Mapping[str, int]:
        """See ProcessTable."""
        self._counted(await self._store.in_flight())
        return self._counts.in_flight

    async def homes(self) -> Mapping[str, int]:
        """See ProcessTable."""
        return await self._store.homes()

    async def expire(self, now_s: float, idle_s: float) -> Sequence[EndedProgram]:
        """See ProcessTable. Also renews the leases of this gateway's calls, and closes calls with
        expired leases as aborted.
        """
        await self._renew()
        return [*await self._close_lapsed(now_s), *await self._remove_idle(now_s - idle_s)]

    async def counts(self) -> ProgramCounts:
        """See ProcessTable."""
        return await self._store.counts()

    async def identity(self) -> bytes:
        """Return the random name of the table on the server. A changed name means that all rows
        were lost.
        """
        return await self._store.identity()

    def seen(self) -> list[Program]:
        """Return the last seen state of each named program, as `peek` does."""
        return list(self._seen.values())

    def accounts(self) -> list[Account]:
        """Return the last seen state of each account."""
        return list(self._accounts.values())

    @property
    def link(self) -> RedisLink:
        """The gateway's Redis client, shared with other stores."""
        return self._store

    async def reopen(self, openings: Sequence[Opening]) -> None:
        """Open these calls, except open ones. They are all open calls of this gateway: leases of
        other calls, whose closing was lost, are not renewed any more.
        """
        for first in range(0, len(openings), _BATCH):
            await self._store.open_all(openings[first : first + _BATCH])
        self._leases = {rows.lease(opening.key, opening.call) for opening in openings}

    async def refresh(self) -> None:
        """After an outage: renew this gateway's leases, give other gateways time to renew theirs,
        and read the calls in flight.
        """
        self._grace_until_s = await self._renew() + self._lease_s
        await self.count()

    async def check(self) -> Sequence[str]:
        """See ProcessTable. Exact while no call opens or closes. Scans all keys of the database:
        for tests and operators.
        """
        return await violations(self._store)

    async def ping(self) -> None:
        """See ProcessTable."""
        await self._store.ping()

    async def aclose(self) -> None:
        """See ProcessTable."""
        await self._store.aclose()

    async def _close_lapsed(self, now_s: float) -> list[EndedProgram]:
        gone: list[EndedProgram] = []
        for lease in await self._store.lapsed(self._lease_s, self._grace_until_s):
            key, call = rows.leased(lease)
            closing = Closing(key, call, now_s, Outcome.ABORTED)
            # The script checks the lease again, because its gateway may have renewed it meanwhile.
            program = self._closed(await self._store.close(closing, self._lease_s))
            if program is not None and rules.goes(program):
                gone.append(rules.ended(program))
        return gone

    async def _renew(self) -> float:
        """Renew the leases of this gateway's calls. Returns the Redis time."""
        leases, now_s = list(self._leases), 0.0
        for first in range(0, max(1, len(leases)), _BATCH):
            now_s = await self._store.renew(leases[first : first + _BATCH])
        return now_s

    async def _end_idle(self, keys: Sequence[ProgramKey]) -> None:
        """End a tenant's surplus programs, except those called meanwhile. A failure is ignored,
        because the causing operation has succeeded; the next surplus program tries again.
        """
        with suppress(TableUnavailable):
            for gone in await self._store.end_idle(keys, inf):
                self._seen.pop(gone.key, None)

    def _expected(self, opening: Opening) -> str:
        """Return the replica that Redis will choose, as far as this gateway knows."""
        program = self._seen.get(opening.key) if opening.sticky else None
        if program is not None and program.home in opening.eligible:
            return program.home
        return opening.candidate

    def _closed(self, closed: ClosedRow | None) -> Program | None:
        if closed is None:
            return None
        self._counted(closed.counts)
        if closed.program is not None:
            self._saw(closed.program)
        return closed.program

    async def _remove_idle(self, before: float) -> list[EndedProgram]:
        gone: list[EndedProgram] = []
        # Busy programs stay, regardless of the duration of their calls.
        busy = 0
        while True:
            idle = await self._store.older(self._store.keys.activity, before, busy, _BATCH)
            removed = await self._store.end_idle([rows.key_of(raw) for raw in idle], before)
            for each in removed:
                self._seen.pop(each.key, None)
            gone += removed
            busy += len(idle) - len(removed)
            if len(idle) < _BATCH:
                return gone

    def _counted(self, counts: Counts) -> None:
        # Replies on several connections can arrive out of order, by less than the timeout. By more,
        # the server's clock was set back.
        if not 0 < self._counts.at_s - counts.at_s < self._timeout_s:
            self._counts = counts

    def _saw(self, program: Program) -> None:
        if rules.goes(program):
            self._seen.pop(program.key, None)
        elif not program.ephemeral:
            before = self._seen.get(program.key)
            # Replies on several connections can arrive out of order.
            if before is not None and _older(program, before):
                return
            self._seen[program.key] = program
            self._seen.move_to_end(program.key)
            while len(self._seen) > _SEEN:
                self._seen.popitem(last=False)


def _older(program: Program, than: Program) -> bool:
    events, others = program.calls + program.calls_closed, than.calls + than.calls_closed
    return program.arrival_s == than.arrival_s and events < others


def _sum(known: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    if not more:
        return known
    return {**known, **{name: known.get(name, 0) + count for name, count in more.items()}}
