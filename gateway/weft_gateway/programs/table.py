"""The protocol of the process table, which owns all state about programs (Agentix 4.2.1).

Three implementations pass one contract suite (`tests/contract`): `memory`; `redis`; and
`resilient`, which continues in memory while Redis is away.

Contracts of all implementations:
- `open_call` and `close_call` are one atomic round trip each. If one raises, nothing has changed.
  Exception: if the reply of the store is lost, TableUnavailable is raised although the change may
  be stored. A later `expire` closes such a call as aborted.
- Closing a call twice, or closing one that was never opened, changes nothing and returns None.
- Values are not checked: usage comes from reports that were checked when they were parsed.
- The number of named programs per tenant is limited. Over the limit, the tenant's program that has
  been idle longest is ended before the method returns. Programs with open calls stay, so a tenant
  can exceed the limit if all its programs have open calls.
- `in_flight` and `work` count over all gateways that share the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from weft_gateway.model import (
    Closing,
    EndedProgram,
    Opened,
    Opening,
    Program,
    ProgramAttribute,
    ProgramCounts,
    ProgramKey,
)
from weft_gateway.model.slo import Ask
from weft_gateway.model.spending import Account, Changes
from weft_gateway.model.usage import Payer, Used


class TableUnavailable(Exception):
    """The table's store cannot be reached. The message names the store."""


class BudgetSpent(Exception):
    """A call was not opened: a budget is spent, or calls in flight may spend it. program, accounts:
    their states, without the call.
    """

    def __init__(self, program: Program, accounts: tuple[Account, ...]) -> None:
        super().__init__("a budget is spent or reserved")
        self.program = program
        self.accounts = accounts


class ProcessTable(Protocol):
    """State of all programs, shared by all gateways."""

    @property
    def local(self) -> bool:
        """Whether the shared store is away and answers reflect this gateway only."""
        ...

    async def open_call(self, opening: Opening) -> Opened:
        """Open a call: create the program if it is new, choose the call's replica, add a thread.

        An ended program that still has calls in flight becomes active again. A removed program
        starts anew. An ephemeral program that is called by name becomes a named one. The call's
        `ask` sets the program's goal if a client asked for it or the program has none; the goal's
        unit begins as in `rules.pursued`. The call's reserve counts against the budgets of its
        program and of its charges until it closes. Raises BudgetSpent if one of them has no room,
        as in `rules.has_room`, and ValueError if the call is already open.
        """
        ...

    async def close_call(self, closing: Closing) -> Program | None:
        """Close a call: remove its thread and add its usage. Returns the program afterwards.

        `critical_path_s` becomes max(itself, its value when the call opened + service_s) (Algorithm
        1, line 4), and `path_calls` max(itself, its value when the call opened + 1), unless it is a
        prefill. An ephemeral or ended program is removed with its last call; its last state is
        still returned. The closing adds to the usage of its day, once, if it has a payer.
        """
        ...

    async def start(
        self, key: ProgramKey, now_s: float, ask: Ask | None = None
    ) -> tuple[Program, bool]:
        """Create the program if it does not exist. Returns the program and whether it is new. ask:
        the goal of its calls; its time begins with the first call.
        """
        ...

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """End a program: remove its row now or, if calls are in flight, after the last one. Returns
        None if the program is unknown or already ended.
        """
        ...

    async def set_attribute(
        self, key: ProgramKey, attribute: ProgramAttribute, now_s: float
    ) -> Program | None:
        """Set an attribute of a program; an empty text removes it. All gateways see it in
        `Program.attributes`. A missing program is created, as by `start`. A removal does not create
        it and returns None. Raises ValueError if the attribute is too long.
        """
        ...

    async def set_budget(self, key: ProgramKey, changes: Changes, now_s: float) -> Program | None:
        """Change members of a program's budget. Returns None if the program is unknown."""
        ...

    async def get(self, key: ProgramKey) -> Program | None:
        """Return the program from the store."""
        ...

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """Return at most `limit` programs of a tenant with ids after `after`, ordered by id."""
        ...

    async def usage(self, day: str, tenant: str = "") -> Mapping[Payer, Used]:
        """Return what the calls of a day (UTC, ISO 8601) used by payer, over all gateways; of one
        tenant, or of all (""). The rules are those of `ledger`. Raises TableUnavailable rather than
        returning a part.
        """
        ...

    def peek(self, key: ProgramKey) -> Program | None:
        """Return the last state of the program that this process has seen. No I/O; may be stale
        (Redis), never raises.
        """
        ...

    def in_flight(self) -> Mapping[str, int]:
        """Return the number of open calls per replica, as of this process's last round trip. No
        I/O.
        """
        ...

    def work(self) -> Mapping[str, int]:
        """Return the summed predicted costs of the open calls per replica (HexGen-Flow, equation
        3), microseconds, as of this process's last round trip. No replica without such calls. No
        I/O.
        """
        ...

    async def count(self) -> Mapping[str, int]:
        """Read the number of open calls per replica over all gateways from the store. It equals
        calls opened minus calls closed, also after rows of programs with open calls were deleted by
        hand.
        """
        ...

    async def homes(self) -> Mapping[str, int]:
        """Read the number of programs by home, over all gateways, from the store."""
        ...

    async def expire(self, now_s: float, idle_s: float) -> Sequence[EndedProgram]:
        """Remove programs without open calls whose last activity (start, opening or closing) is
        older than `idle_s`. Returns the removed programs. One gateway of those that share the table
        reports each removal; if the store's reply is lost, none does.

        Every gateway that shares the table must call it about every 30 seconds. Otherwise the
        leases of its calls run out and the calls are closed as aborted.
        """
        ...

    async def counts(self) -> ProgramCounts:
        """Return programs created and ended, over all gateways since the table was created, and
        programs alive: created minus ended.
        """
        ...

    async def check(self) -> Sequence[str]:
        """Check integrity. Returns one message per violated invariant (open calls against
        per-replica counts, negative times, ephemeral or ended programs without calls).
        """
        ...

    async def ping(self) -> None:
        """Raise TableUnavailable if the store cannot be reached."""
        ...

    async def aclose(self) -> None:
        """Release connections. Rows in a shared store stay."""
        ...
