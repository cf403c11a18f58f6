"""The process table on Redis: many gateways, one table. Scripts in `lua/`, one round trip each.

Redis runs a script alone, which makes each change atomic. Wants Redis 5 or newer (or Valkey) with
`maxmemory-policy noeviction`: an evicted row would lose calls that are open. See `rows` for the
keys; they share one hash slot, so a table can live on one node of a cluster, reached directly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.model import Closing, Opened, Opening, Outcome, Program, ProgramKey
from gateway.programs import rows, rules
from gateway.programs.redis_check import violations
from gateway.programs.redis_store import RedisStore

# Programs whose last seen state `peek` can give.
_SEEN: Final = 16_384
_BATCH: Final = 500
# Of a call whose gateway has given no sign. Four times what passes between two signs.
_LEASE_S: Final = 120.0


class RedisTable:
    """See ProcessTable. `url`: redis://, rediss:// or unix://. `prefix` keeps tables apart.

    A call holds a lease, which `expire` renews for the calls of this gateway. When a gateway dies,
    or an answer of Redis is lost so that nobody knows of the opening, the lease runs out after
    `lease_s` seconds and the next `expire` of any gateway closes the call as aborted.
    """

    def __init__(self, url: str, prefix: str = "weft", lease_s: float = _LEASE_S) -> None:
        self._store = RedisStore(url, prefix)
        self._lease_s = lease_s
        self._leases: set[bytes] = set()
        self._in_flight: dict[str, int] = {}
        self._seen: OrderedDict[ProgramKey, Program] = OrderedDict()

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable. Where it raises after Redis ran the script, because the answer was
        lost, the call's lease runs out."""
        rules.check_opening(opening)
        lease = rows.lease(opening.key, opening.call)
        replica, created, program, in_flight = await self._store.open(opening, lease)
        self._leases.add(lease)
        self._in_flight = in_flight
        self._saw(program)
        return Opened(program, replica, created, in_flight)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        rules.check_closing(closing)
        lease = rows.lease(closing.key, closing.call)
        # Before the round trip: a call that cannot be closed must not be renewed for ever.
        self._leases.discard(lease)
        closed = await self._store.close(closing, lease)
        if closed is None:
            return None
        self._in_flight = closed.in_flight
        self._saw(closed.program)
        return closed.program

    async def start(self, key: ProgramKey, now_s: float) -> tuple[Program, bool]:
        """See ProcessTable."""
        rules.check_instant(now_s)
        program, created = await self._store.start(key, now_s)
        self._saw(program)
        return program, created

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """See ProcessTable."""
        program = await self._store.end(key)
        self._seen.pop(key, None)
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

    def peek(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        return self._seen.get(key)

    def in_flight(self) -> Mapping[str, int]:
        """See ProcessTable."""
        return self._in_flight

    async def expire(self, now_s: float, idle_s: float) -> Sequence[ProgramKey]:
        """See ProcessTable. Also renews the leases of this gateway's calls and closes, as aborted,
        calls whose lease has run out."""
        rules.check_instant(now_s)
        if self._leases:
            await self._store.renew(self._leases, now_s)
        return [*await self._close_lapsed(now_s), *await self._remove_idle(now_s - idle_s)]

    async def check(self) -> Sequence[str]:
        """See ProcessTable. Exact while no call is being opened or closed. Looks at every key of
        the database: for tests and for operators."""
        return await violations(self._store)

    async def ping(self) -> None:
        """See ProcessTable."""
        await self._store.ping()

    async def aclose(self) -> None:
        """See ProcessTable."""
        await self._store.aclose()

    async def _close_lapsed(self, now_s: float) -> list[ProgramKey]:
        gone = []
        keys, before = self._store.keys, now_s - self._lease_s
        for lease in await self._store.older(keys.leases, before):
            key, call = rows.leased(lease)
            program = await self.close_call(Closing(key, call, now_s, Outcome.ABORTED))
            if program is not None and rules.goes(program):
                gone.append(key)
        return gone

    async def _remove_idle(self, before: float) -> list[ProgramKey]:
        gone: list[ProgramKey] = []
        # Busy programs stay, however long their calls have been running.
        busy = 0
        while True:
            idle = await self._store.older(self._store.keys.activity, before, busy, _BATCH)
            removed = await self._store.end_idle([rows.key_of(raw) for raw in idle], before)
            for key in removed:
                self._seen.pop(key, None)
            gone += removed
            busy += len(idle) - len(removed)
            if len(idle) < _BATCH:
                return gone

    def _saw(self, program: Program) -> None:
        if rules.goes(program):
            self._seen.pop(program.key, None)
        elif not program.ephemeral:
            self._seen[program.key] = program
            self._seen.move_to_end(program.key)
            while len(self._seen) > _SEEN:
                self._seen.popitem(last=False)
