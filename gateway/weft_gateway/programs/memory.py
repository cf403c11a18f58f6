"""The process table in this process's memory: the default."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heapreplace, nsmallest
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from weft_gateway.model import (
    Closing,
    EndedProgram,
    Opened,
    Opening,
    Program,
    ProgramAttribute,
    ProgramCounts,
    ProgramKey,
    spending,
)
from weft_gateway.model.slo import Ask
from weft_gateway.model.spending import NO_RESERVE, Account, Changes, Reserve
from weft_gateway.model.usage import Payer, Used
from weft_gateway.programs import rules
from weft_gateway.programs.ledger import Ledger
from weft_gateway.programs.table import BudgetSpent

_MAX_PROGRAMS: Final = 100_000
_T = TypeVar("_T")


class _OpenCall(NamedTuple):
    """critical_path_s, path_calls: of the program when the call opened. cost: predicted,
    microseconds. accounts: those that pay its reserve and what it uses.
    """

    key: ProgramKey
    replica: str
    critical_path_s: float
    path_calls: int
    cost: int
    accounts: tuple[str, ...] = ()
    reserve: Reserve = NO_RESERVE


class _Named:
    """A tenant's named programs. ids: all of them, unsorted: listing is rare and sorts when called.
    idle: those without a call, longest idle first.
    """

    __slots__ = ("idle", "ids")

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.idle: OrderedDict[str, None] = OrderedDict()


class MemoryTable:
    """One process, one dictionary. No method awaits, so every method is atomic.

    The cost of opening and closing a call does not depend on the number of programs. per_tenant:
    limit of named programs per tenant. max_programs: above this total, `expire` removes the longest
    idle programs of the tenants with most idle programs, however short they have been idle.
    Programs with a call in flight are never removed.
    """

    local: Final = False

    def __init__(
        self, max_programs: int = _MAX_PROGRAMS, per_tenant: int = rules.MAX_PER_TENANT
    ) -> None:
        self._max_programs = max_programs
        self._per_tenant = per_tenant
        self._programs: dict[ProgramKey, Program] = {}
        # Time of each program's last activity, oldest first.
        self._activity: OrderedDict[ProgramKey, float] = OrderedDict()
        # Named programs by tenant. Ephemeral programs end by themselves.
        self._named: dict[str, _Named] = {}
        self._open: dict[str, _OpenCall] = {}
        self._in_flight: dict[str, int] = {}
        self._work: dict[str, int] = {}
        self._accounts: dict[str, Account] = {}
        self._ledger = Ledger()
        self._created = 0

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable."""
        return self._opened(opening)

    def _opened(self, opening: Opening) -> Opened:
        if opening.call in self._open:
            raise ValueError(f"call {opening.call} is open already")
        before = self._programs.get(opening.key)
        row = before or rules.fresh(opening.key, opening.now_s, opening.ephemeral)
        charges, reserve = opening.charges, opening.reserve
        accounts: tuple[Account, ...] = ()
        if charges:
            known = self._accounts
            accounts = tuple(
                [spending.opened(known.get(c.account), c, opening.now_s) for c in charges]
            )
        if not rules.has_room(row, accounts, opening):
            raise BudgetSpent(row, accounts)
        program, replica = rules.opened(row, opening)
        self._put(before, program, opening.now_s)
        cost = opening.costs.get(replica, 0) if opening.costs else 0
        names = tuple([charge.account for charge in charges]) if charges else ()
        self._open[opening.call] = _OpenCall(
            opening.key, replica, row.critical_path_s, row.path_calls, cost, names, reserve
        )
        if accounts:
            accounts = tuple([spending.reserving(account, reserve) for account in accounts])
            self._accounts |= zip(names, accounts, strict=True)
        in_flight = self._in_flight
        in_flight[replica] = in_flight.get(replica, 0) + 1
        if cost:
            self._work[replica] = self._work.get(replica, 0) + cost
        return Opened(program, replica, before is None, accounts=accounts)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        call = self._open.get(closing.call)
        if call is None or call.key != closing.key:
            return None
        before = self._programs[call.key]
        program = rules.closed(before, closing, call.critical_path_s, call.path_calls)
        del self._open[closing.call]
        _take(self._in_flight, call.replica, 1)
        if call.cost:
            _take(self._work, call.replica, call.cost)
        for name in call.accounts:
            account = self._accounts[name]
            self._accounts[name] = rules.settled(account, call.reserve, closing)
        self._ledger.close(closing)
        if rules.goes(program):
            self._remove(call.key)
        else:
            self._put(before, program, closing.now_s)
        return program

    async def start(
        self, key: ProgramKey, now_s: float, ask: Ask | None = None
    ) -> tuple[Program, bool]:
        """See ProcessTable."""
        row = self._programs.get(key)
        known = row or rules.fresh(key, now_s, ephemeral=False)
        program = replace(known, ephemeral=False, ended=False, goal=rules.asked(known.goal, ask))
        self._put(row, program, now_s)
        return program, row is None

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """See ProcessTable."""
        row = self._programs.get(key)
        if row is None or row.ended:
            return None
        program = replace(row, ended=True)
        if program.threads:
            self._programs[key] = program
        else:
            self._remove(key)
        return program

    async def set_attribute(
        self, key: ProgramKey, attribute: ProgramAttribute, now_s: float
    ) -> Program | None:
        """See ProcessTable."""
        rules.check_attribute(attribute)
        if attribute.text:
            await self.start(key, now_s)
        row = self._programs.get(key)
        if row is None:
            return None
        program = replace(row, attributes=rules.with_attribute(row.attributes, attribute))
        self._programs[key] = program
        return program

    async def set_budget(self, key: ProgramKey, changes: Changes, now_s: float) -> Program | None:
        """See ProcessTable."""
        row = self._programs.get(key)
        if row is None:
            return None
        allowance = spending.changed(row.allowance, changes)
        program = self._programs[key] = replace(row, allowance=allowance)
        return program

    async def get(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        return self._programs.get(key)

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """See ProcessTable."""
        named = self._named.get(tenant)
        names = () if named is None else named.ids
        page = nsmallest(limit, (name for name in names if not after or name > after))
        return [self._programs[ProgramKey(tenant, name)] for name in page]

    async def usage(self, day: str, tenant: str = "") -> Mapping[Payer, Used]:
        """See ProcessTable."""
        return self._ledger.of(day, tenant)

    def peek(self, key: ProgramKey) -> Program | None:
        """See ProcessTable. Exact here."""
        return self._programs.get(key)

    def in_flight(self) -> Mapping[str, int]:
        """See ProcessTable. Exact here."""
        return self._in_flight

    def work(self) -> Mapping[str, int]:
        """See ProcessTable. Exact here."""
        return self._work

    async def count(self) -> Mapping[str, int]:
        """See ProcessTable."""
        return self._in_flight

    async def homes(self) -> Mapping[str, int]:
        """See ProcessTable. Visits all programs."""
        return Counter(program.home for program in self._programs.values() if program.home)

    async def expire(self, now_s: float, idle_s: float) -> Sequence[EndedProgram]:
        """See ProcessTable. Visits only idle programs that are removed, and busy ones older than
        the limit.
        """
        before = now_s - idle_s
        gone: list[ProgramKey] = []
        for key, last_s in self._activity.items():
            if last_s >= before:
                break
            if not self._programs[key].threads:
                gone.append(key)
        return [*[rules.ended(self._remove(key)) for key in gone], *self._make_room()]

    async def counts(self) -> ProgramCounts:
        """See ProcessTable."""
        alive = len(self._programs)
        return ProgramCounts(self._created, self._created - alive, alive)

    def adopt(
        self,
        programs: Iterable[Program],
        openings: Iterable[Opening],
        accounts: Iterable[Account] = (),
    ) -> None:
        """Start with programs and accounts from another table and with these calls open. The table
        must be empty.
        """
        for account in accounts:
            self._accounts[account.name] = replace(account, open_calls=0, reserve=NO_RESERVE)
        for program in programs:
            row = replace(program, threads=(), calls=program.calls_closed, ended=False)
            self._put(None, row, max(program.last_arrival_s, program.last_completion_s))
        for opening in openings:
            self._opened(opening)

    async def check(self) -> Sequence[str]:
        """See ProcessTable."""
        calls = {(call.key, name): (call.replica, call.cost) for name, call in self._open.items()}
        found = rules.miscounts(calls, self._in_flight, self._work)
        found += [fault for row in self._programs.values() for fault in rules.violations(row)]
        found += rules.differences(
            self._programs.values(),
            calls,
            {tenant: named.ids for tenant, named in self._named.items()},
            {tenant: {*named.idle} for tenant, named in self._named.items()},
        )
        sums: dict[str, Account] = {}
        for call in self._open.values():
            for name in call.accounts:
                sums[name] = spending.reserving(
                    sums.get(name) or Account(name, 0.0, 0.0), call.reserve
                )
        found += rules.misreserved(self._accounts, sums)
        if self._activity.keys() != self._programs.keys():
            found.append("the activity index differs from the programs")
        return found

    async def ping(self) -> None:
        """See ProcessTable. Memory is always available."""

    async def aclose(self) -> None:
        """See ProcessTable. Nothing to release."""

    def _put(self, before: Program | None, program: Program, now_s: float) -> None:
        key = program.key
        self._created += before is None
        self._programs[key] = program
        if not program.ephemeral:
            named = self._named.get(key.tenant)
            if named is None:
                named = self._named[key.tenant] = _Named()
            if before is None or before.ephemeral:
                named.ids.add(key.program)
                over = min(len(named.ids) - self._per_tenant, rules.ENDED_AT_ONCE)
                if over > 0:
                    for name in list(islice(named.idle, over)):
                        self._remove(ProgramKey(key.tenant, name))
            named.idle.pop(key.program, None)
            if not program.threads:
                named.idle[key.program] = None
        # If the clock goes back, the order is kept.
        if now_s > self._activity.get(key, -inf):
            self._activity[key] = now_s
            self._activity.move_to_end(key)

    def _remove(self, key: ProgramKey) -> Program:
        program = self._programs.pop(key)
        del self._activity[key]
        if program.ephemeral:
            return program
        named = self._named[key.tenant]
        named.ids.remove(key.program)
        named.idle.pop(key.program, None)
        if not named.ids:
            del self._named[key.tenant]
        return program

    def _make_room(self) -> list[EndedProgram]:
        """Remove programs above the total limit."""
        gone: list[EndedProgram] = []
        if len(self._programs) <= self._max_programs:
            return gone
        most = [(-len(named.idle), tenant) for tenant, named in self._named.items() if named.idle]
        heapify(most)
        while most and len(self._programs) > self._max_programs:
            idle, tenant = most[0]
            if not idle:
                break
            longest = ProgramKey(tenant, next(iter(self._named[tenant].idle)))
            gone.append(rules.ended(self._remove(longest)))
            heapreplace(most, (idle + 1, tenant))
        return gone


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits. Raises RuntimeError if it does."""
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise RuntimeError("the in-memory process table must not wait")


def _take(sums: dict[str, int], replica: str, amount: int) -> None:
    """Subtract from a replica's sum, and remove a sum of zero."""
    left = sums[replica] - amount
    if left:
        sums[replica] = left
    else:
        del sums[replica]
