"""Programs and their calls, as stored in the process table (Agentix 4.2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from weft_gateway.model.record import record
from weft_gateway.model.slo import NO_GOAL, Ask, Goal
from weft_gateway.model.spending import (
    NO_ALLOWANCE,
    NO_RESERVE,
    Account,
    Allowance,
    Amounts,
    Charge,
    Reserve,
    used,
)
from weft_gateway.model.usage import Payer


class ProgramKey(NamedTuple):
    """A program's identity: the tenant (a digest of the API key) and the client's opaque id."""

    tenant: str
    program: str


class Outcome(StrEnum):
    """How a call ended. REFUSED: the gateway did not send a program's first call, and the program
    is as before it.
    """

    OK = "ok"
    ERROR = "error"
    ABORTED = "aborted"
    REFUSED = "refused"


class EndedProgram(NamedTuple):
    """A program that the table has ended, and its engines, as in `Program.replicas`. program: its
    last state.
    """

    key: ProgramKey
    replicas: tuple[str, ...]
    program: Program


class ProgramCounts(NamedTuple):
    """Programs created and ended in a table, and programs alive."""

    created: int
    ended: int
    alive: int


@record
class Thread:
    """One active call of a program: "each thread corresponds to an active LLM call".

    thread, parent: the chain of calls that this call continues, and the chain that started that
    one, "" if none. arrival_s: Unix time, seconds. waiting_s, service_s: seconds, as reported by
    the engine; 0 before a report. reserve: see `Opening`.
    """

    call: str
    thread: str
    replica: str
    arrival_s: float
    waiting_s: float = 0.0
    service_s: float = 0.0
    parent: str = ""
    reserve: Reserve = NO_RESERVE


@record
class ProgramAttribute:
    """A named text that applies to a program's calls until `until_s` (Unix time), for example
    prefills and tags. An empty text removes the attribute.
    """

    name: str
    text: str
    until_s: float


@record
class Program:
    """A snapshot of one row of the process table. Durations in seconds; instants are Unix time.

    service_s: engine time of all finished calls (PLAS, equation 1). critical_path_s: the longest
    observed critical path (ATLAS, Algorithm 1 line 4). waiting_s: time in the engines' queues.
    home: the replica that long calls are pinned to (Algorithm 2), or "". threads: active calls.
    ephemeral: it has no name and ends with its only call. ended: its handle was deleted while calls
    were in flight; the row is removed with the last of them. attributes: one per name; may include
    expired ones. last_replica: of the call that was opened last, or "". goal: its deadline.
    path_calls: number of calls on the longest observed path, on which parallel calls count once.
    allowance: its budget. nanodollars: the price of all finished calls.
    """

    key: ProgramKey
    arrival_s: float
    service_s: float = 0.0
    critical_path_s: float = 0.0
    waiting_s: float = 0.0
    home: str = ""
    threads: tuple[Thread, ...] = ()
    last_arrival_s: float = 0.0
    last_completion_s: float = 0.0
    calls: int = 0
    calls_closed: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    ephemeral: bool = False
    ended: bool = False
    attributes: tuple[ProgramAttribute, ...] = ()
    last_replica: str = ""
    goal: Goal = NO_GOAL
    path_calls: int = 0
    allowance: Allowance = NO_ALLOWANCE
    nanodollars: int = 0

    def used(self, now_s: float) -> Amounts:
        """Return what its finished calls have used, and the time since its begin."""
        return used(self, self.calls_closed, now_s - self.arrival_s)

    def reserved(self) -> Amounts:
        """Return what its calls in flight reserve."""
        all_of = [thread.reserve.amounts() for thread in self.threads]
        return Amounts(*map(sum, zip(*all_of, strict=True)))

    def attribute(self, name: str, now_s: float) -> str:
        """Return the text of the current attribute with this name, "" if none."""
        for each in self.attributes:
            if each.name == name and each.until_s > now_s:
                return each.text
        return ""

    @property
    def replicas(self) -> tuple[str, ...]:
        """The program's home, and the replicas of its active calls and of the last one, without
        duplicates.
        """
        names = (self.home, *[t.replica for t in self.threads], self.last_replica)
        return tuple(dict.fromkeys(name for name in names if name))


@record
class Opening:
    """A request to open a call.

    candidate: the replica that the router proposes. sticky: the program's home decides (Algorithm
    2, long calls). The home wins over the candidate if it is one of `eligible`; otherwise the
    candidate becomes the home. The table decides this atomically, so that several gateways agree.
    parent: the thread that started this one, or "". ask: the goal that the call asks for. costs:
    its predicted cost by replica, microseconds; empty if not predicted.

    reserve: what the call may use. charges: accounts that pay beside its program. allowance: the
    budget of a program that has none. admitted: budgets let the call pass, because it goes on.
    """

    key: ProgramKey
    call: str
    thread: str
    candidate: str
    eligible: frozenset[str]
    sticky: bool
    now_s: float
    ephemeral: bool = False
    parent: str = ""
    ask: Ask | None = None
    costs: Mapping[str, int] = field(default_factory=dict)
    reserve: Reserve = NO_RESERVE
    charges: tuple[Charge, ...] = ()
    allowance: Allowance = NO_ALLOWANCE
    admitted: bool = False


@record
class Opened:
    """The answer to an opening: the program with this call open, the call's replica, and whether
    the program is new. local: the table's store is away, so the answer reflects this gateway only.
    accounts: those of its charges, with this call.
    """

    program: Program
    replica: str
    created: bool
    local: bool = False
    accounts: tuple[Account, ...] = ()


@record
class Closing:
    """The end of a call, with the engine's report (zeros without one). advance: a prefill, which is
    no call of the program's path. nanodollars: its price. payer: who the usage is counted for;
    None if it is not counted.
    """

    key: ProgramKey
    call: str
    now_s: float
    outcome: Outcome
    service_s: float = 0.0
    waiting_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    advance: bool = False
    nanodollars: int = 0
    payer: Payer | None = None
