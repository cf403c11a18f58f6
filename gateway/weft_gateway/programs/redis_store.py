"""Typed access to the table's scripts on a Redis server: one round trip per method. Stateless."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from redis.exceptions import ResponseError

from weft_gateway.model import (
    Closing,
    EndedProgram,
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
from weft_gateway.programs import ledger, rows, rules
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.rows import encode, number
from weft_gateway.programs.table import BudgetSpent

_Arguments = tuple[list[Any], list[Any]]
# Rows of usage that are read at once.
_PIECE: Final = 250


class Counts(NamedTuple):
    """Open calls and their costs by replica, over all gateways. at_s: the server's time."""

    at_s: float
    in_flight: dict[str, int]
    work: dict[str, int]


class OpenedRow(NamedTuple):
    """Reply of `open.lua`. over: the tenant's programs above its limit. accounts: of the call's
    charges.
    """

    replica: str
    created: bool
    program: Program
    counts: Counts
    over: list[ProgramKey]
    accounts: tuple[Account, ...]


class ClosedRow(NamedTuple):
    """Reply of `close.lua`. program: None if the call is not open in its program's row."""

    program: Program | None
    counts: Counts


class RedisStore(RedisLink):
    """One table's keys on one server. Every method raises TableUnavailable with the server's name
    if the server refuses or does not reply within `timeout_s` seconds.
    """

    def __init__(
        self, url: str, prefix: str, timeout_s: float, per_tenant: int = rules.MAX_PER_TENANT
    ) -> None:
        """per_tenant: limit of named programs per tenant; see ProcessTable."""
        super().__init__(url, prefix, timeout_s)
        self._per_tenant = per_tenant
        self._open, self._close, self._start, self._end, self._set_attribute = (
            self.script("common", name)
            for name in ("open", "close", "start", "end", "set_attribute")
        )
        self._renew, self._lapsed, self._count = (
            self.script("common", name) for name in ("renew", "lapsed", "count")
        )
        self._homes, self._set_budget, self._charge = (
            self.script("common", name) for name in ("homes", "set_budget", "charge")
        )

    async def open(self, opening: Opening) -> OpenedRow:
        """Open a call. Raises ValueError if it is already open, and BudgetSpent, both without a
        change.
        """
        async with self.reaching():
            try:
                reply = await self._open(*self._opening(opening))
            except ResponseError as error:
                if _refused(error):
                    raise ValueError(f"call {opening.call} is open already") from None
                raise
        replica, created, at, size, costs, many, charged, *rest = rows.unpack(reply)
        counts, rest = rest[: int(size)], rest[int(size) :]
        work, rest = rest[: int(costs)], rest[int(costs) :]
        over, rest = rest[: int(many)], rest[int(many) :]
        packed, row = rest[: int(charged)], rest[int(charged) :]
        accounts: tuple[Account, ...] = ()
        if packed:
            names = [charge.account for charge in opening.charges]
            accounts = tuple(map(rows.account, names, packed))
        if not created:
            fresh = rules.fresh(opening.key, opening.now_s, opening.ephemeral)
            program = rows.program(opening.key, rows.pairs(row)) if row else fresh
            raise BudgetSpent(program, accounts)
        return OpenedRow(
            rows.decode(replica),
            created == b"1",
            rows.program(opening.key, rows.pairs(row)),
            Counts(float(at), rows.counts(counts), rows.counts(work)),
            _of_tenant(opening.key, over),
            accounts,
        )

    async def close(self, closing: Closing, lapsed_s: float | None = None) -> ClosedRow | None:
        """Close a call. lapsed_s: close it only if its lease is older, in seconds of the server's
        clock. Returns None if the lease is newer.
        """
        async with self.reaching():
            reply = await self._close(*self._closing(closing, lapsed_s))
        if reply is None:
            return None
        at, size, costs, *rest = rows.unpack(reply)
        counts, rest = rest[: int(size)], rest[int(size) :]
        work, row = rest[: int(costs)], rest[int(costs) :]
        program = rows.program(closing.key, rows.pairs(row)) if row else None
        return ClosedRow(program, Counts(float(at), rows.counts(counts), rows.counts(work)))

    async def start(
        self, key: ProgramKey, now_s: float, ask: Ask | None = None
    ) -> tuple[Program, bool, list[ProgramKey]]:
        """Create or keep a program, with the goal that `ask` asks for. Returns the program, whether
        it is new, and the tenant's programs above its limit.
        """
        async with self.reaching():
            reply = await self._start(
                self._index_keys(key), [*self._starting(key, now_s), *rows.asking(ask)]
            )
        created, many, *rest = rows.unpack(reply)
        over, row = rest[: int(many)], rest[int(many) :]
        return rows.program(key, rows.pairs(row)), created == b"1", _of_tenant(key, over)

    async def end(self, key: ProgramKey) -> Program | None:
        """End a program. Returns None if it is unknown or ended."""
        async with self.reaching():
            reply = await self._end(*self._ending(key))
        return None if reply is None else rows.program(key, rows.pairs(rows.unpack(reply)))

    async def set_attribute(
        self, key: ProgramKey, attribute: ProgramAttribute, now_s: float
    ) -> tuple[Program | None, list[ProgramKey]]:
        """Set or remove an attribute. Returns the program, None if a removal finds none, and the
        tenant's programs above its limit.
        """
        arguments = self._starting(key, now_s)
        arguments += [encode(attribute.name), encode(attribute.text), number(attribute.until_s)]
        async with self.reaching():
            reply = await self._set_attribute(self._index_keys(key), arguments)
        if reply is None:
            return None, []
        many, *rest = rows.unpack(reply)
        over, row = rest[: int(many)], rest[int(many) :]
        return rows.program(key, rows.pairs(row)), _of_tenant(key, over)

    async def set_budget(self, key: ProgramKey, changes: Changes) -> Program | None:
        """Change a program's budget. Returns None if the program is unknown."""
        async with self.reaching():
            reply = await self._set_budget([self.keys.row(key)], rows.budget_changes(changes))
        return None if reply is None else rows.program(key, rows.pairs(rows.unpack(reply)))

    async def open_all(self, openings: Iterable[Opening]) -> None:
        """Open these calls, except open ones. One round trip."""
        async with self.reaching(), self.redis.pipeline(transaction=False) as pipe:
            for opening in openings:
                await self._open(*self._opening(opening), client=pipe)
            for reply in await pipe.execute(raise_on_error=False):
                if isinstance(reply, Exception) and not _refused(reply):
                    raise reply

    async def usage(self, day: str, tenant: str) -> dict[Payer, Used]:
        """Read a day's usage in pieces: it may have thousands of rows."""
        match = None if not tenant else encode(tenant) + b"\n*"
        async with self.reaching():
            found = self.redis.hscan_iter(self.keys.usage(day), match=match, count=_PIECE)
            return {rows.payer(name): rows.used(packed) async for name, packed in found}

    async def charge(self, day: str, used: Mapping[Payer, Used], name: str) -> None:
        """Add usage to a day, unless an addition of this name was made."""
        arguments: list[Any] = [_limits(), ledger.KEEP_DAYS * ledger.DAY_S]
        for payer, amounts in used.items():
            arguments += (rows.payer_field(payer), _sums(amounts))
        async with self.reaching():
            await self._charge([self.keys.usage(day), self.keys.charged(name)], arguments)

    async def end_idle(self, keys: Sequence[ProgramKey], before: float) -> list[EndedProgram]:
        """End those of these programs that have no open call and were last active before `before`.
        The script checks again, because calls may have arrived since the lookup.
        """
        async with self.reaching(), self.redis.pipeline(transaction=False) as pipe:
            for key in keys:
                await self._end(*self._ending(key, number(before)), client=pipe)
            ended = await pipe.execute()
        return [
            rules.ended(rows.program(key, rows.pairs(rows.unpack(reply))))
            for key, reply in zip(keys, ended, strict=True)
            if reply is not None
        ]

    async def read(self, keys: Iterable[ProgramKey]) -> list[Program | None]:
        """Read programs; None for each missing one."""
        wanted = list(keys)
        async with self.reaching(), self.redis.pipeline(transaction=False) as pipe:
            for key in wanted:
                pipe.hgetall(self.keys.row(key))
            found = await pipe.execute()
        return [
            rows.program(key, row) if row else None for key, row in zip(wanted, found, strict=True)
        ]

    async def in_flight(self) -> Counts:
        """Read open calls and their costs by replica. They are counted again if counts were
        deleted.
        """
        keys = self.keys
        async with self.reaching():
            reply = await self._count([keys.in_flight, keys.calls, keys.work])
        at, size, *rest = rows.unpack(reply)
        counts, work = rest[: int(size)], rest[int(size) :]
        return Counts(float(at), rows.counts(counts), rows.counts(work))

    async def homes(self) -> dict[str, int]:
        """Read the number of programs by home. They are counted again if counts were deleted."""
        async with self.reaching():
            return rows.counts(await self._homes([self.keys.home_counts, self.keys.homes]))

    async def counts(self) -> ProgramCounts:
        """Read programs created and ended since the table was created, and those alive."""
        async with self.reaching(), self.redis.pipeline(transaction=True) as pipe:
            pipe.hmget(self.keys.totals, ["created", "ended"])
            pipe.zcard(self.keys.activity)
            (created, ended), alive = await pipe.execute()
        return ProgramCounts(int(created or 0), int(ended or 0), alive)

    async def identity(self) -> bytes:
        """Return the table's random name. The first caller sets it. A changed name means that the
        rows were lost. Also works as a probe of a server that is away.
        """
        async with self.reaching(probe=True), self.redis.pipeline(transaction=False) as pipe:
            pipe.set(self.keys.table, os.urandom(12).hex(), nx=True)
            pipe.get(self.keys.table)
            _, name = await pipe.execute()
        return cast(bytes, name)

    async def members(self, index: bytes) -> list[bytes]:
        """Return all members of a sorted set in order."""
        async with self.reaching():
            return cast(list[bytes], await self.redis.zrange(index, 0, -1))

    async def older(
        self, index: bytes, before: float, skip: int = 0, limit: int = -1
    ) -> list[bytes]:
        """Return members of a sorted set with scores below `before`. skip: members to skip. limit:
        -1 for all.
        """
        async with self.reaching():
            found = await self.redis.zrangebyscore(
                index, "-inf", f"({number(before)}", start=skip, num=limit
            )
        return cast(list[bytes], found)

    async def names(self, tenant: str, after: str, limit: int) -> list[ProgramKey]:
        """Return a tenant's named programs with ids greater than `after`, ordered by id."""
        first = b"(" + encode(after) if after else b"-"
        async with self.reaching():
            found = await self.redis.zrangebylex(
                self.keys.names(tenant), first, b"+", start=0, num=limit
            )
        return [ProgramKey(tenant, rows.decode(name)) for name in cast(list[bytes], found)]

    async def renew(self, leases: Sequence[bytes]) -> float:
        """Renew the leases of open calls; closed calls stay closed. Returns the server's time."""
        keys = [self.keys.leases, self.keys.in_flight, self.keys.calls, self.keys.work]
        arguments: list[bytes] = []
        for lease in leases:
            program, call = rows.leased(lease)
            keys.append(self.keys.row(program))
            arguments += (lease, encode(call))
        async with self.reaching():
            return float(await self._renew(keys, arguments))

    async def lapsed(self, lease_s: float, grace_until_s: float) -> list[bytes]:
        """Return leases not renewed for `lease_s` seconds; none before `grace_until_s`. Both use
        the server's clock.
        """
        async with self.reaching():
            keys, arguments = [self.keys.leases, self.keys.calls], [lease_s, grace_until_s]
            return cast(list[bytes], await self._lapsed(keys, [*map(number, arguments)]))

    async def every_key(self) -> list[bytes]:
        """Return the keys of this table, possibly with duplicates. Scans the whole database."""
        base = self.keys.base
        async with self.reaching():
            return [raw async for raw in self.redis.scan_iter(count=1000) if raw.startswith(base)]

    def _opening(self, opening: Opening) -> _Arguments:
        return self._call_keys(opening.key), [
            rows.member(opening.key),
            encode(opening.key.program),
            encode(opening.call),
            encode(opening.thread),
            encode(opening.candidate),
            int(opening.sticky),
            number(opening.now_s),
            int(opening.ephemeral),
            rows.lease(opening.key, opening.call),
            encode(opening.parent),
            self._per_tenant,
            *rows.asking(opening.ask),
            int(opening.admitted),
            rows.budget(opening.allowance),
            rows.claim(opening.reserve),
            len(opening.charges),
            len(opening.eligible),
            *map(encode, opening.eligible),
            *[
                part
                for charge in opening.charges
                for part in (encode(charge.account), charge.since_s, rows.budget(charge.allowance))
            ],
            *[part for name, cost in opening.costs.items() for part in (encode(name), cost)],
        ]

    def _closing(self, closing: Closing, lapsed_s: float | None = None) -> _Arguments:
        keys = [*self._call_keys(closing.key), self.keys.usage(ledger.day_of(closing.now_s))]
        payer = closing.payer
        return keys, [
            rows.member(closing.key),
            encode(closing.key.program),
            encode(closing.call),
            number(closing.now_s),
            "refused"
            if closing.outcome is Outcome.REFUSED
            else int(closing.outcome is Outcome.ERROR),
            number(closing.service_s),
            number(closing.waiting_s),
            closing.prompt_tokens,
            closing.cached_tokens,
            closing.output_tokens,
            closing.preemptions,
            rows.lease(closing.key, closing.call),
            "" if lapsed_s is None else number(lapsed_s),
            int(not closing.advance),
            closing.nanodollars,
            *(
                (rows.payer_field(payer), _limits(), _sums(ledger.used_by(closing)))
                if payer
                else (b"",)
            ),
        ]

    def _starting(self, key: ProgramKey, now_s: float) -> list[Any]:
        return [rows.member(key), encode(key.program), number(now_s), self._per_tenant]

    def _ending(self, key: ProgramKey, before: str = "") -> _Arguments:
        return self._index_keys(key), [rows.member(key), encode(key.program), before]

    def _call_keys(self, key: ProgramKey) -> list[Any]:
        keys = self.keys
        return [
            keys.row(key), keys.in_flight, keys.activity, keys.names(key.tenant),
            keys.idle(key.tenant), keys.leases, keys.totals, keys.calls, keys.homes,
            keys.home_counts, keys.work, keys.budgets, keys.reserved,
        ]  # fmt: skip

    def _index_keys(self, key: ProgramKey) -> list[Any]:
        keys = self.keys
        return [
            keys.row(key), keys.activity, keys.names(key.tenant), keys.idle(key.tenant),
            keys.totals, keys.homes, keys.home_counts,
        ]  # fmt: skip


def _of_tenant(key: ProgramKey, names: Iterable[bytes]) -> list[ProgramKey]:
    return [ProgramKey(key.tenant, rows.decode(name)) for name in names]


def _refused(error: Exception) -> bool:
    """Whether a script reports that its call is already open."""
    return isinstance(error, ResponseError) and "WEFT" in str(error)


def _limits() -> str:
    """Pack how many rows a day has, and how long it is kept, seconds."""
    return _sums((ledger.MOST_ROWS, (ledger.KEEP_DAYS + 1) * ledger.DAY_S))


def _sums(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))
