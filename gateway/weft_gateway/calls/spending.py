"""Applies budgets to calls: what a call reserves, who pays it, and what a client is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import time
from typing import Any, Final, NamedTuple

from weft_gateway.allowances import since_s, written, written_limits
from weft_gateway.calls.call import Call, Placed
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.response import Headers
from weft_gateway.errors import ApiError
from weft_gateway.model import Program
from weft_gateway.model.slo import NO_GOAL, Slos
from weft_gateway.model.spending import (
    NO_ALLOWANCE,
    Account,
    Allowance,
    Amounts,
    AtLimit,
    Charge,
    Reserve,
)
from weft_gateway.prices import Prices
from weft_gateway.programs import rules
from weft_gateway.programs.table import BudgetSpent, ProcessTable
from weft_gateway.tenants import Tenants

_HEADER: Final = b"x-weft-budget-left"
# The member of a request that limits each answer, by precedence.
_MOST: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# Of a request without one, if the model's context is unknown.
_UNKNOWN_OUTPUT: Final = 32_768
_MOST_OUTPUT: Final = 10**12


class Balance(NamedTuple):
    """A budget and its use. of: program, key or class. name: of the key or class."""

    of: str
    name: str
    allowance: Allowance
    used: Amounts
    reserved: Amounts

    def left(self) -> dict[str, float]:
        """Return what is left of each limit."""
        of = written(self.used)
        left = {name: limit - of[name] for name, limit in written_limits(self.allowance).items()}
        return {name: round(value, 9) for name, value in left.items()}

    def spent(self) -> list[str]:
        """Return the limits that are reached."""
        return [name for name, left in self.left().items() if left <= 0]


class BudgetExhausted(ApiError):
    """A call may not begin. waits: it may later: a budget holds its calls until it is raised, or
    only calls in flight may still use what is left.
    """

    def __init__(self, message: str, waits: bool, headers: Headers) -> None:
        more = (*headers, (b"x-should-retry", b"false"))
        super().__init__(429, "budget_exhausted", message, headers=more)
        self.waits = waits


@dataclass(slots=True, eq=False)
class Spending:
    """The budgets of all calls. told: called if a call meets a limit, with what happens to it."""

    tenants: Tenants
    slos: Slos
    prices: Prices
    registry: Registry
    table: ProcessTable
    told: Callable[[Call, Balance, str], None] = lambda call, balance, then: None

    def claim(self, call: Call, placed: Placed) -> Reserve:
        """Return what a call reserves. Sets the accounts that pay for it, by the rules of now."""
        call.charges = self._charges(call)
        return self._reserve(call, placed)

    def _charges(self, call: Call) -> tuple[Charge, ...]:
        """Return the accounts that pay for a call beside its program."""
        tenants, tenant, now_s = self.tenants, call.identity.key.tenant, time()
        own, found = tenants.of(tenant).budget, []
        if own is not None:
            found.append(Charge(f"key {tenant}", own.allowance, since_s(own.per, now_s)))
        if tenants.class_budgets:
            name = self._class(call)
            budget = tenants.class_budgets.get(name)
            if budget is not None:
                since = since_s(budget.per, now_s)
                found.append(Charge(f"class {name}", budget.allowance, since))
        return tuple(found)

    def _class(self, call: Call) -> str:
        program = self.table.peek(call.identity.key)
        goal = rules.asked(NO_GOAL if program is None else program.goal, call.ask)
        return goal.slo or self.slos.of(call.identity.key.tenant).default

    def _reserve(self, call: Call, placed: Placed) -> Reserve:
        """Return the most that a call is expected to use: its estimated prompt, and the answer that
        it allows. Of engine time: what the program's calls took on average.
        """
        prompt, output = placed.prompt_tokens, 0
        if call.endpoint.is_text:
            output = min(self._output(call, prompt), _MOST_OUTPUT)
        program = self.table.peek(call.identity.key)
        mean_s = 0.0
        if program is not None and program.calls_closed:
            mean_s = program.service_s / program.calls_closed
        prices = self.prices
        price = prices.nanodollars(call.model, time(), prompt, 0, output, mean_s) if prices else 0
        return Reserve(prompt, output, int(mean_s * 1e6), price)

    def _output(self, call: Call, prompt: int) -> int:
        body = call.body
        most = next((body[name] for name in _MOST if type(body.get(name)) is int), None)
        if most is None:
            length = self.registry.context(call.model)
            most = max(length - prompt, 1) if length else _UNKNOWN_OUTPUT
        answers = body.get("n")
        many, prompts = 1, body.get("prompt")
        if isinstance(prompts, list) and prompts and isinstance(prompts[0], str | list):
            many = len(prompts)
        return max(most, 0) * (answers if type(answers) is int and answers > 0 else 1) * many

    def opened(self, call: Call, program: Program, accounts: tuple[Account, ...]) -> None:
        """Keep the balances of an open call for its answer."""
        call.balances = self._balances(call, program, accounts)
        for balance in call.balances:
            if balance.allowance.at_limit is AtLimit.WARN and balance.spent():
                self.told(call, balance, "warn")

    def refused(self, call: Call, error: BudgetSpent) -> BudgetExhausted:
        """Return the error of a call that was not opened."""
        balances = self._balances(call, error.program, error.accounts)
        strict = [each for each in balances if each.allowance.at_limit is not AtLimit.WARN]
        spent = [each for each in strict if each.spent()]
        final = [each for each in spent if each.allowance.at_limit is AtLimit.REFUSE]
        if final or (spent and not call.held_for_budget):
            balance = (final or spent)[0]
            self.told(call, balance, "refuse" if final else "hold")
        call.held_for_budget |= bool(spent and not final)
        about = " ".join([_about(each, call) for each in final or spent])
        what = about or "What is left of a budget is reserved by calls in flight."
        return BudgetExhausted(f"budget_exhausted: {what}", not final, headers(balances))

    def closed(self, call: Call, program: Program) -> None:
        """Renew the program's balance, for the headers of an answer that is no stream."""
        call.balances = tuple(
            [of_program(program, each.allowance) if each.of == "program" else each
             for each in call.balances]
        )  # fmt: skip

    def _balances(
        self, call: Call, program: Program, accounts: tuple[Account, ...]
    ) -> tuple[Balance, ...]:
        own = call.allowance if program.allowance is NO_ALLOWANCE else program.allowance
        if own is NO_ALLOWANCE and not accounts:
            return ()
        now_s = time()
        found = [] if own is NO_ALLOWANCE else [of_program(program, own)]
        for charge, account in zip(call.charges, accounts, strict=True):
            of, _, name = account.name.partition(" ")
            shown = self.tenants.name(name) if of == "key" else name
            used, reserved = account.used(now_s), account.reserved()
            found.append(Balance(of, shown, charge.allowance, used, reserved))
        return tuple(found)


def of_program(program: Program, allowance: Allowance) -> Balance:
    """Return the balance of a program under a budget."""
    return Balance("program", "", allowance, program.used(time()), program.reserved())


def use_of_budget(program: Program) -> dict[str, Any] | None:
    """Return the use of the limit that a program is nearest to, for the live view."""
    if program.allowance is NO_ALLOWANCE:
        return None
    balance = of_program(program, program.allowance)
    used, limits = written(balance.used), written_limits(balance.allowance)
    share, name = max(
        (used[name] / limit if limit else 1.0, name) for name, limit in limits.items()
    )
    return {"name": name, "used": used[name], "limit": limits[name], "share": round(share, 3)}


def headers(balances: tuple[Balance, ...]) -> Headers:
    """Return the header that says what is left: of each limit, of the budget with least."""
    least: dict[str, float] = {}
    for balance in balances:
        for name, left in balance.left().items():
            least[name] = min(left, least.get(name, left))
    text = ", ".join([f"{name}={_number(left)}" for name, left in least.items()])
    return [(_HEADER, text.encode())] if text else []


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9f}".rstrip("0").rstrip(".")


def _about(balance: Balance, call: Call) -> str:
    """Say what is left, the limit, and how to raise it."""
    limits, left = written_limits(balance.allowance), balance.left()
    spent = ", ".join(
        [f"{name} {_number(left[name])} left of {_number(limits[name])}"
         for name in balance.spent()]
    )  # fmt: skip
    if balance.of == "program":
        name = call.identity.key.program[:256]
        how = f'raise it with PATCH /v1/sessions/{name} {{"budget": {{"{balance.spent()[0]}": N}}}}'
        return f"The budget of this session is used up: {spent}; {how}."
    how = f"its operator can raise the budget of {balance.of} {balance.name} in the keys file"
    return f"The budget of this {balance.of} is used up: {spent}; {how}."
