"""The process table's protocol: the one owner of state about programs (Agentix 4.2.1).

The implementations pass one contract suite (`tests/contract`): `memory`; `redis`; and `resilient`,
which goes on in memory while Redis is away.

Contracts that hold for all:
- `open_call` and `close_call` are one atomic round trip each; if one raises, nothing has changed.
  Where the store's answer was lost on the way, TableUnavailable is raised all the same, and a call
  that was opened so is closed as aborted by a later `expire`.
- Closing a call twice, or one that was never opened, changes nothing and returns None.
- Times only grow: negative service or waiting is refused with ValueError before any change.
- A tenant has at most as many named programs as the table was made with. One more ends the tenant's
  program that has been without a call for longest, before the method returns. Programs with calls
  stay: if all have some, there are more.
- `in_flight` counts over all gateways that share the table.
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


class TableUnavailable(Exception):
    """The table's store cannot be reached. The message names it."""


class ProcessTable(Protocol):
    """State of all programs, shared by all gateways."""

    @property
    def local(self) -> bool:
        """Whether the shared store is away, and answers are what this gateway alone knows."""
        ...

    async def open_call(self, opening: Opening) -> Opened:
        """Open a call: create the program if it is new, settle the call's replica, add a thread.

        A program that has been ended and still has calls in flight is called back to life; one that
        is gone begins anew. An ephemeral one that is called as a named one stays. ValueError if the
        call is open already.
        """
        ...

    async def close_call(self, closing: Closing) -> Program | None:
        """Close a call: remove its thread, add what it used. Returns the program afterwards.

        `critical_path_s` becomes max(itself, its value when the call opened + service_s)
        (Algorithm 1, line 4). An ephemeral program, or one that has been ended, goes with its last
        call; its last state is still returned.
        """
        ...

    async def start(self, key: ProgramKey, now_s: float) -> tuple[Program, bool]:
        """Create the program if it does not exist. Returns it and whether it is new."""
        ...

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """End a program: remove its row, at once or, with calls in flight, after the last one.
        None if it is unknown (or ended before)."""
        ...

    async def set_attribute(
        self, key: ProgramKey, attribute: ProgramAttribute, now_s: float
    ) -> Program | None:
        """Set an attribute of a program; an empty text removes it. All gateways see it in
        `Program.attributes`. A program that does not exist is created, as by `start`, except for a
        removal, which then returns None. ValueError if it is too long.
        """
        ...

    async def get(self, key: ProgramKey) -> Program | None:
        """The program as the store has it now."""
        ...

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """A tenant's programs in the order of their ids, those greater than `after`, at most
        `limit`."""
        ...

    def peek(self, key: ProgramKey) -> Program | None:
        """What this process last saw of the program. No I/O; may be stale (Redis), never raises."""
        ...

    def in_flight(self) -> Mapping[str, int]:
        """Calls open per replica, as of this process's last round trip. No I/O."""
        ...

    async def count(self) -> Mapping[str, int]:
        """Calls open per replica over all gateways, asked of the store now. It equals calls opened
        less calls closed, also after somebody deleted rows of programs with open calls."""
        ...

    async def expire(self, now_s: float, idle_s: float) -> Sequence[EndedProgram]:
        """Remove programs without active calls whose last activity (start, opening or closing) is
        older than `idle_s`. Returns what was removed: each program at one of the gateways that
        share the table, or, where the store's answer is lost, at none.

        To be called every 30 seconds or so by every gateway that shares the table: calls of a
        gateway that does not are taken for lost after a while and closed as aborted."""
        ...

    async def counts(self) -> ProgramCounts:
        """Programs created and ended, over all gateways and since the table began, and those alive,
        which are as many as were created and have not ended."""
        ...

    async def check(self) -> Sequence[str]:
        """Integrity: every violated invariant in words (open calls against per-replica counts,
        negative times, ephemeral or ended programs without calls). Empty when all is well."""
        ...

    async def ping(self) -> None:
        """Raise TableUnavailable if the store cannot be reached."""
        ...

    async def aclose(self) -> None:
        """Release connections. The rows stay where the store is shared."""
        ...
