"""State changes of a program's row when its calls open and close. Pure; shared by both tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from weft_gateway.model import (
    Closing,
    EndedProgram,
    Opening,
    Outcome,
    Program,
    ProgramAttribute,
    ProgramKey,
    Thread,
)
from weft_gateway.model.slo import NO_GOAL, Ask, Goal, Scope
from weft_gateway.model.spending import NO_ALLOWANCE, Account, Reserve, full, reserving

# Default limit of named programs per tenant.
MAX_PER_TENANT: Final = 100_000
# Maximum programs ended when one new program exceeds the limit, so that calls do not wait.
ENDED_AT_ONCE: Final = 16
# Maximum characters of an attribute's text and of its name. Every call of the program carries them.
_MOST_TEXT: Final = 16_384
_MOST_NAME: Final = 32


def fresh(key: ProgramKey, now_s: float, ephemeral: bool) -> Program:
    """Return the row of a new program without calls."""
    return Program(key=key, arrival_s=now_s, ephemeral=ephemeral)


def settle(program: Program, opening: Opening) -> tuple[str, str]:
    """Return the call's replica and the program's home (Agentix Algorithm 2, lines 5 to 10).

    A sticky call uses the home if the home is eligible. Otherwise its candidate becomes the home.
    """
    if not opening.sticky:
        return opening.candidate, program.home
    if program.home in opening.eligible:
        return program.home, program.home
    return opening.candidate, opening.candidate


def opened(program: Program, opening: Opening) -> tuple[Program, str]:
    """Return the row with the call open, and the call's replica.

    An ended program with calls in flight becomes active again, because its client has returned. An
    ephemeral program that is called by name becomes a named one.
    """
    replica, home = settle(program, opening)
    thread = Thread(
        opening.call, opening.thread, replica, opening.now_s, 0.0, 0.0, opening.parent,
        opening.reserve,
    )  # fmt: skip
    # By position, as in `closed`: every call builds two rows, and keywords double the cost of one.
    after = Program(
        program.key,
        program.arrival_s,
        program.service_s,
        program.critical_path_s,
        program.waiting_s,
        home,
        (*program.threads, thread),
        max(program.last_arrival_s, opening.now_s),
        program.last_completion_s,
        program.calls + 1,
        program.calls_closed,
        program.errors,
        program.prompt_tokens,
        program.cached_tokens,
        program.output_tokens,
        program.preemptions,
        program.ephemeral and opening.ephemeral,
        False,
        _holding(program.attributes, opening.now_s) if program.attributes else (),
        replica,
        NO_GOAL
        if program.goal is NO_GOAL and (opening.ask is None or opening.ask.goal is NO_GOAL)
        else pursued(program, opening.ask, opening.now_s),
        program.path_calls,
        opening.allowance if program.allowance is NO_ALLOWANCE else program.allowance,
        program.nanodollars,
    )
    return after, replica


def has_room(program: Program, accounts: Iterable[Account], opening: Opening) -> bool:
    """Whether the budgets of a call's program and of its accounts let it begin."""
    now_s = opening.now_s
    own = opening.allowance if program.allowance is NO_ALLOWANCE else program.allowance
    return opening.admitted or not (
        (own is not NO_ALLOWANCE and full(own, program.used(now_s), program.reserved()))
        or any(
            full(charge.allowance, account.used(now_s), account.reserved())
            for charge, account in zip(opening.charges, accounts, strict=True)
        )
    )


def settled(account: Account, reserve: Reserve, closing: Closing) -> Account:
    """Return the account after a call."""
    account = reserving(account, reserve, -1)
    if closing.outcome is Outcome.REFUSED:
        return account
    return replace(
        account,
        calls=account.calls + 1,
        prompt_tokens=account.prompt_tokens + closing.prompt_tokens,
        cached_tokens=account.cached_tokens + closing.cached_tokens,
        output_tokens=account.output_tokens + closing.output_tokens,
        service_s=account.service_s + closing.service_s,
        nanodollars=account.nanodollars + closing.nanodollars,
    )


def asked(known: Goal, ask: Ask | None) -> Goal:
    """Return the goal with the class and the deadline of a request, unless the program has others
    for which a client asked.
    """
    if ask is None or ask.goal is NO_GOAL or not (ask.explicit or known is NO_GOAL):
        return known
    goal = ask.goal
    return Goal(goal.slo, goal.scope, goal.deadline_s, known.begun_s, known.begun_calls)


def pursued(program: Program, ask: Ask | None, now_s: float) -> Goal:
    """Return the goal of a program when a call opens. The unit begins with the program's first
    call, or with the first call of a turn.
    """
    goal = asked(program.goal, ask)
    turns = goal.scope is Scope.TURN
    if not goal.begun_s and program.calls and not turns:
        return Goal(goal.slo, goal.scope, goal.deadline_s, program.arrival_s, 0)
    if not goal.begun_s or (turns and ask is not None and ask.turn):
        return Goal(goal.slo, goal.scope, goal.deadline_s, now_s, program.path_calls)
    return goal


def ended(program: Program) -> EndedProgram:
    """Return a program that the table has ended."""
    return EndedProgram(program.key, program.replicas, replace(program, ended=True))


def closed(
    program: Program,
    closing: Closing,
    critical_path_at_open_s: float,
    path_calls_at_open: int = 0,
) -> Program:
    """Return the row after a call (Algorithm 1, line 4)."""
    if closing.outcome is Outcome.REFUSED:
        return _taken_back(program, closing.call)
    return Program(
        program.key,
        program.arrival_s,
        program.service_s + closing.service_s,
        max(program.critical_path_s, critical_path_at_open_s + closing.service_s),
        program.waiting_s + closing.waiting_s,
        program.home,
        _without(program.threads, closing.call),
        program.last_arrival_s,
        max(program.last_completion_s, closing.now_s),
        program.calls,
        program.calls_closed + 1,
        program.errors + (closing.outcome is Outcome.ERROR),
        program.prompt_tokens + closing.prompt_tokens,
        program.cached_tokens + closing.cached_tokens,
        program.output_tokens + closing.output_tokens,
        program.preemptions + closing.preemptions,
        program.ephemeral,
        program.ended,
        program.attributes,
        program.last_replica,
        program.goal,
        max(program.path_calls, path_calls_at_open + (not closing.advance)),
        program.allowance,
        program.nanodollars + closing.nanodollars,
    )


def _taken_back(program: Program, call: str) -> Program:
    """Return the row without a call that was not sent. If it was the only one, the unit of the
    program's goal begins with the next call.
    """
    goal, calls = program.goal, program.calls - 1
    if goal is not NO_GOAL and not calls:
        goal = replace(goal, begun_s=0.0, begun_calls=0)
    return replace(program, threads=_without(program.threads, call), calls=calls, goal=goal)


def _without(threads: tuple[Thread, ...], call: str) -> tuple[Thread, ...]:
    """Return the threads of the other calls."""
    if len(threads) == 1 and threads[0].call == call:
        return ()
    return tuple([thread for thread in threads if thread.call != call])


def with_attribute(
    known: tuple[ProgramAttribute, ...], attribute: ProgramAttribute
) -> tuple[ProgramAttribute, ...]:
    """Return the attributes with this one added or replaced. An attribute with an empty text is
    removed.
    """
    others = [each for each in known if each.name != attribute.name]
    kept = [*others, attribute] if attribute.text else others
    return tuple(sorted(kept, key=lambda each: each.name))


def _holding(known: tuple[ProgramAttribute, ...], now_s: float) -> tuple[ProgramAttribute, ...]:
    """Return no attributes once all have expired. Until then, calls also carry expired ones."""
    return known if any(attribute.until_s > now_s for attribute in known) else ()


def check_attribute(attribute: ProgramAttribute) -> None:
    """Validate an attribute. Raises ValueError."""
    if not attribute.name or "\n" in attribute.name or len(attribute.name) > _MOST_NAME:
        raise ValueError(f"invalid attribute name: {attribute.name!r}")
    if len(attribute.text) > _MOST_TEXT:
        raise ValueError(f"{attribute.name}: at most {_MOST_TEXT} characters are allowed")


def goes(program: Program) -> bool:
    """Whether the row must be removed after the call that has just closed."""
    return not program.threads and (program.ephemeral or program.ended)


def violations(program: Program) -> list[str]:
    """Return the violated invariants of one row as messages."""
    found = []
    if program.calls - program.calls_closed != len(program.threads):
        found.append(
            f"{program.key}: {program.calls} calls opened, {program.calls_closed} closed, but "
            f"{len(program.threads)} are open"
        )
    found += [
        f"{program.key}: {name} is {getattr(program, name)}"
        for name in ("service_s", "critical_path_s", "waiting_s")
        if not getattr(program, name) >= 0
    ]
    # Both are sums of the same terms in different orders.
    if program.critical_path_s > program.service_s * (1 + 1e-9) + 1e-9:
        found.append(f"{program.key}: the critical path is longer than all service")
    if not 0 <= program.goal.begun_calls <= program.path_calls <= program.calls_closed:
        found.append(
            f"{program.key}: of {program.calls_closed} closed calls, {program.path_calls} are on a "
            f"path, {program.goal.begun_calls} of them before the goal's unit"
        )
    if not program.threads and program.ephemeral:
        found.append(f"{program.key}: an ephemeral program has no call")
    if not program.threads and program.ended:
        found.append(f"{program.key}: an ended program without calls has not been removed")
    return found


def miscounts(
    calls: Mapping[tuple[ProgramKey, str], tuple[str, int]],
    in_flight: Mapping[str, int],
    work: Mapping[str, int],
) -> list[str]:
    """Return differences between the open calls and their counts, as messages. calls: the replica
    and the predicted cost of each open call. in_flight: calls by replica. work: their summed costs.
    """
    found: list[str] = []
    costs: Counter[str] = Counter()
    for replica, cost in calls.values():
        costs[replica] += cost
    if in_flight != (counts := Counter(replica for replica, _ in calls.values())):
        found.append(f"in flight {in_flight}, but open calls give {dict(counts)}")
    if work != (summed := {replica: cost for replica, cost in costs.items() if cost}):
        found.append(f"work {work}, but open calls give {summed}")
    return found


def misreserved(accounts: Mapping[str, Account], sums: Mapping[str, Account]) -> list[str]:
    """Return accounts whose reservations differ from those of the open calls, as messages."""
    return [
        f"account {name}: reserves {account.open_calls} calls, {account.reserve}, and its open "
        f"calls reserve {found.open_calls}, {found.reserve}"
        for name, account in accounts.items()
        if (account.open_calls, account.reserve)
        != ((found := sums.get(name) or Account(name, 0.0, 0.0)).open_calls, found.reserve)
    ]


def differences(
    programs: Iterable[Program],
    calls: Mapping[tuple[ProgramKey, str], tuple[str, int]],
    named: Mapping[str, set[str]],
    idle: Mapping[str, set[str]],
) -> list[str]:
    """Return differences between the rows and a table's indexes: one message per call or program,
    which changes when the program has another call. calls: as in `miscounts`. named, idle: named
    programs by tenant, and those without a call.
    """
    threads: dict[tuple[ProgramKey, str], str] = {}
    names: set[ProgramKey] = set()
    quiet: set[ProgramKey] = set()
    states: dict[ProgramKey, str] = {}
    for program in programs:
        threads |= {(program.key, thread.call): thread.replica for thread in program.threads}
        if not program.ephemeral:
            names.add(program.key)
            states[program.key] = f"{program.calls} calls, {program.calls_closed} closed"
            if not program.threads:
                quiet.add(program.key)
    at = {name: replica for name, (replica, _) in calls.items()}
    found = [
        f"open calls differ from threads: {one} is only among the open calls"
        for one in sorted(at.items() - threads.items())
    ]
    found += [
        f"open calls differ from threads: {one} is only among the threads"
        for one in sorted(threads.items() - at.items())
    ]
    for what, index, known in (("names", named, names), ("idle programs", idle, quiet)):
        listed = {ProgramKey(tenant, name) for tenant, ids in index.items() for name in ids}
        found += [
            f"{key}: the list of {what} and the row differ ({states.get(key, 'no row')})"
            for key in sorted(listed ^ known)
        ]
    return found
