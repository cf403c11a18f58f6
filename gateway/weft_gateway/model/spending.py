"""What a program, a key or a class may use (its budget), what it has used, and what its calls in
flight may still use.

Inside the gateway a budget is an `Allowance`, because `CallBudget` is a call's part of a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from weft_gateway.model.record import record

NANO: Final = 1_000_000_000


class AtLimit(StrEnum):
    """What happens to the next call at a limit: it gets 429, it passes with a warning, or it waits
    until the budget is raised.
    """

    REFUSE = "refuse"
    WARN = "warn"
    HOLD = "hold"


class Amounts(NamedTuple):
    """What calls used. input_tokens: of prompts, without cached ones. tokens: of prompts and
    answers. wall_s: since the first call. Money is integral, so that sums are exact.
    """

    tokens: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    engine_s: float = 0.0
    wall_s: float = 0.0
    nanodollars: int = 0


# The names of the limits, in the order in which they are stored. Clients see dollars.
MEMBERS: Final = Amounts._fields


@record
class Allowance:
    """The limits; None for no limit."""

    tokens: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    calls: int | None = None
    engine_s: float | None = None
    wall_s: float | None = None
    nanodollars: int | None = None
    at_limit: AtLimit = AtLimit.REFUSE

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by name."""
        found = {name: getattr(self, name) for name in MEMBERS}
        return {name: limit for name, limit in found.items() if limit is not None}


NO_ALLOWANCE: Final = Allowance()
ALLOWANCE_FIELDS: Final = tuple(field.name for field in fields(Allowance))
# Members to change, with their new values; None removes a limit.
Changes = Mapping[str, float | str | None]


@record
class Reserve:
    """The most that a call in flight is expected to use, in integers, so that sums return to 0.
    engine_us: microseconds.
    """

    prompt_tokens: int = 0
    output_tokens: int = 0
    engine_us: int = 0
    nanodollars: int = 0

    def amounts(self, calls: int = 1) -> Amounts:
        """Return what it takes from each limit: the prompt may be cached or not."""
        prompt, output = self.prompt_tokens, self.output_tokens
        engine_s = self.engine_us / 1e6
        return Amounts(
            prompt + output, prompt, prompt, output, calls, engine_s, 0.0, self.nanodollars
        )


NO_RESERVE: Final = Reserve()


@record
class Charge:
    """An account that a call is charged to, beside its program's. since_s: the begin of the
    account's period, Unix time; 0 if it has none.
    """

    account: str
    allowance: Allowance
    since_s: float = 0.0


@record
class Account:
    """What the calls of a key or a class have used in a period, and what those in flight reserve.
    begun_s: the first call of the period, Unix time.
    """

    name: str
    since_s: float
    begun_s: float
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    service_s: float = 0.0
    nanodollars: int = 0
    open_calls: int = 0
    reserve: Reserve = NO_RESERVE

    def used(self, now_s: float) -> Amounts:
        """Return what has been used."""
        return used(self, self.calls, now_s - self.begun_s)

    def reserved(self) -> Amounts:
        """Return what calls in flight reserve."""
        return self.reserve.amounts(self.open_calls)


def used(of: Any, calls: int, wall_s: float) -> Amounts:
    """Return what an account or a program has used."""
    prompt, cached, output = of.prompt_tokens, of.cached_tokens, of.output_tokens
    return Amounts(
        prompt + output, prompt - cached, cached, output, calls, of.service_s, max(wall_s, 0.0),
        of.nanodollars,
    )  # fmt: skip


def full(allowance: Allowance, of: Amounts, reserved: Amounts) -> bool:
    """Whether no other call may begin. A reservation is the most that a call uses, so all calls
    together exceed a limit by less than the last of them uses.
    """
    if allowance is NO_ALLOWANCE or allowance.at_limit is AtLimit.WARN:
        return False
    return any(
        of[at] + reserved[at] >= limit
        for at, name in enumerate(MEMBERS)
        if (limit := getattr(allowance, name)) is not None
    )


def changed(allowance: Allowance, changes: Changes) -> Allowance:
    """Return a budget with members set or removed."""
    found = {name: getattr(allowance, name) for name in ALLOWANCE_FIELDS} | {**changes}
    found["at_limit"] = AtLimit(found["at_limit"] or AtLimit.REFUSE)
    new = Allowance(**found)
    return new if new.limits else NO_ALLOWANCE


def opened(account: Account | None, charge: Charge, now_s: float) -> Account:
    """Return the account in the charge's period, which begins with its first call."""
    if account is None:
        return Account(charge.account, charge.since_s, now_s)
    if charge.since_s > account.since_s:
        return Account(
            account.name, charge.since_s, now_s, open_calls=account.open_calls,
            reserve=account.reserve,
        )  # fmt: skip
    return account


def reserving(account: Account, reserve: Reserve, sign: int = 1) -> Account:
    """Return the account with a reservation, or with `sign` -1 without it."""
    was = account.reserve
    return replace(
        account,
        open_calls=account.open_calls + sign,
        reserve=Reserve(
            was.prompt_tokens + sign * reserve.prompt_tokens,
            was.output_tokens + sign * reserve.output_tokens,
            was.engine_us + sign * reserve.engine_us,
            was.nanodollars + sign * reserve.nanodollars,
        ),
    )
