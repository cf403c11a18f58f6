"""The layout of the process table in Redis: its keys and a program's row.

| key (after the prefix) | type | value |
|---|---|---|
| p:TENANT/PROGRAM | hash | the row; `t:CALL`: open calls, `h:NAME`: attributes, `goal`, `budget` |
| calls | hash | lease (call and TENANT/PROGRAM) of each open call to its replica and cost |
| in_flight | hash | replica to the number of its calls in `calls` |
| work | hash | replica to the summed costs of its calls in `calls`, microseconds |
| budgets | hash | account of a key or a class to what it has used and what its calls reserve |
| usage:DAY | hash | payer to what its calls of the day used; expires |
| charged:NAME | string | an addition to `usage` after an outage was made; expires |
| reserved | hash | lease of each open call that accounts pay to its claim and their names |
| homes | hash | TENANT/PROGRAM of each program that has a home to that replica |
| home_counts | hash | replica to the number of programs with this home |
| activity | sorted set | TENANT/PROGRAM by the Unix time of its last activity |
| n:TENANT | sorted set | the tenant's named programs, all with score 0: ordered by id |
| i:TENANT | sorted set | those without an open call, by the Unix time since when |
| leases | sorted set | lease of each open call by the Redis time of its last renewal |
| totals | hash | programs created and ended since the table was created |
| stored | hash | TENANT/RESPONSE to a stored answer |
| stored_ages | sorted set | TENANT/RESPONSE by the Unix time of the last use |
| stored_order | sorted set | TENANT/time/RESPONSE, all with score 0: per tenant, oldest first |
| stored_sizes | sorted set | tenants by the bytes of their answers |
| stored_bytes | string | the bytes of all answers |
| stored_owners | hash | an answer's id to its tenant |
| members | hash | name of a replica to its record: added, drained or removed at run time |
| members_version | string | changes with each change of `members` |
| members_confirmed | hash | gateway to its last sign, its version and its background responses |
| alpha | string | alpha of the balancer `work`, if it was set at run time |
| table | string | a random name of this table; a new name means that the rows were lost |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft_gateway.model import Program, ProgramAttribute, ProgramKey, Thread
from weft_gateway.model.slo import NO_GOAL, Ask, Goal, Scope
from weft_gateway.model.spending import (
    ALLOWANCE_FIELDS,
    MEMBERS,
    NO_ALLOWANCE,
    NO_RESERVE,
    Account,
    Allowance,
    AtLimit,
    Changes,
    Reserve,
)
from weft_gateway.model.usage import Payer, Used

_CALL: Final = b"t:"
_ATTRIBUTE: Final = b"h:"


def encode(text: str) -> bytes:
    """Encode any string, including lone surrogates from JSON escapes."""
    return text.encode("utf-8", "surrogatepass")


def decode(raw: bytes) -> str:
    """The reverse of `encode`."""
    return raw.decode("utf-8", "surrogatepass")


class Keys:
    """The keys of one table, named as above. The prefix is a hash tag, so a cluster keeps a table
    in one slot and a script can change a row, the counts and the indexes together. of_answers,
    of_members: all keys of stored answers and of members.
    """

    def __init__(self, prefix: str) -> None:
        """prefix: without braces, which would break the hash tag."""
        self.base = base = b"{" + encode(prefix) + b"}:"
        self.calls = base + b"calls"
        self.in_flight = base + b"in_flight"
        self.work = base + b"work"
        self.homes = base + b"homes"
        self.home_counts = base + b"home_counts"
        self.activity = base + b"activity"
        self.leases = base + b"leases"
        self.totals = base + b"totals"
        self.budgets = base + b"budgets"
        self.reserved = base + b"reserved"
        self.table = base + b"table"
        self.alpha = base + b"alpha"
        self.of_members = [
            base + name for name in (b"members_version", b"members", b"members_confirmed")
        ]
        parts = (b"", b"_ages", b"_order", b"_sizes", b"_bytes", b"_owners")
        self.of_answers = [base + b"stored" + part for part in parts]

    def usage(self, day: str) -> bytes:
        """What the calls of a day used."""
        return self.base + b"usage:" + encode(day)

    def charged(self, name: str) -> bytes:
        """Whether an addition was made."""
        return self.base + b"charged:" + encode(name)

    def names(self, tenant: str) -> bytes:
        """A tenant's named programs."""
        return self.base + b"n:" + encode(tenant)

    def idle(self, tenant: str) -> bytes:
        """A tenant's named programs without an open call."""
        return self.base + b"i:" + encode(tenant)

    def row(self, key: ProgramKey) -> bytes:
        """A program's row."""
        return self.base + b"p:" + member(key)


def member(key: ProgramKey) -> bytes:
    """Encode a program for an index. Tenants contain no slash, so the first one ends the tenant."""
    return encode(f"{key.tenant}/{key.program}")


def key_of(raw: bytes) -> ProgramKey:
    """The reverse of `member`."""
    tenant, _, name = decode(raw).partition("/")
    return ProgramKey(tenant, name)


def lease(key: ProgramKey, call: str) -> bytes:
    """Encode a call for `leases`. Call ids contain no newline, so the first one ends the id."""
    return encode(call) + b"\n" + member(key)


def leased(raw: bytes) -> tuple[ProgramKey, str]:
    """The reverse of `lease`."""
    call, _, program = raw.partition(b"\n")
    return key_of(program), decode(call)


def payer_field(payer: Payer) -> bytes:
    """Encode a payer for `usage`. Only programs, which are last, may contain a newline."""
    tenant, agent, model, name = payer
    return encode(f"{tenant}\n{agent}\n{model.replace(chr(10), ' ')}\n{name}")


def payer(raw: bytes) -> Payer:
    """The reverse of `payer_field`."""
    return Payer(*decode(raw).split("\n", 3))


def used(packed: bytes) -> Used:
    """Parse a value of `usage`."""
    return Used(*map(int, packed.split()))


def number(value: float) -> str:
    """Format a float for Lua without loss: Redis truncates numbers but not strings."""
    return repr(float(value))


def unpack(reply: bytes) -> list[bytes]:
    """Return the strings of a script's reply, as packed by `pack` in `lua/common.lua`."""
    lengths, _, rest = reply.partition(b"\n")
    parts, at = [], 0
    for length in lengths.split():
        end = at + int(length)
        parts.append(rest[at:end])
        at = end
    return parts


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Parse the HGETALL part of a script's reply."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def placed(raw: bytes) -> tuple[str, int]:
    """Parse a value of `calls`: the replica, and the predicted cost if there is one."""
    replica, _, cost = raw.partition(b"\n")
    return decode(replica), int(cost or 0)


def counts(flat: Sequence[bytes]) -> dict[str, int]:
    """Parse a hash of numbers by replica."""
    return {decode(name): int(value) for name, value in pairs(flat).items()}


def program(key: ProgramKey, row: Mapping[bytes, bytes]) -> Program:
    """Parse a row into a snapshot."""

    def real(name: bytes) -> float:
        return float(row.get(name, 0.0))

    def whole(name: bytes) -> int:
        return int(row.get(name, 0))

    threads = []
    for name, packed in row.items():
        if name.startswith(_CALL):
            # Only the thread ids, which are last, may contain a newline.
            arrival, then, replica, size, ids = packed.split(b"\n", 4)
            parent, thread = decode(ids[: int(size)]), decode(ids[int(size) :])
            call, at_s = decode(name[2:]), float(arrival)
            claim = then.split(b" ", 3)[3:]
            reserve = Reserve(*map(int, claim[0].split())) if claim else NO_RESERVE
            threads.append(Thread(call, thread, decode(replica), at_s, 0.0, 0.0, parent, reserve))
    threads.sort(key=lambda t: (t.arrival_s, t.call))
    return Program(
        key=key,
        arrival_s=real(b"arrival"),
        service_s=real(b"service"),
        critical_path_s=real(b"critical_path"),
        waiting_s=real(b"waiting"),
        home=decode(row.get(b"home", b"")),
        threads=tuple(threads),
        last_arrival_s=real(b"last_arrival"),
        last_completion_s=real(b"last_completion"),
        calls=whole(b"calls"),
        calls_closed=whole(b"calls_closed"),
        errors=whole(b"errors"),
        prompt_tokens=whole(b"prompt"),
        cached_tokens=whole(b"cached"),
        output_tokens=whole(b"output"),
        preemptions=whole(b"preemptions"),
        ephemeral=row.get(b"ephemeral") == b"1",
        ended=b"ended" in row,
        # Few programs have attributes, and a scan of all fields would slow down every call.
        attributes=_attributes(row) if b"told" in row else (),
        last_replica=decode(row.get(b"last_replica", b"")),
        goal=_goal(row[b"goal"]) if b"goal" in row else NO_GOAL,
        path_calls=whole(b"path_calls"),
        allowance=_allowance(row[b"budget"]) if b"budget" in row else NO_ALLOWANCE,
        nanodollars=whole(b"nanodollars"),
    )


def asking(ask: Ask | None) -> list[bytes | str | int]:
    """Return the arguments of `pursue` in `lua/common.lua`; an empty deadline asks for nothing."""
    if ask is None:
        return ["", "", b"", 0, 0]
    goal = ask.goal
    deadline = "" if goal is NO_GOAL else number(goal.deadline_s)
    named = [deadline, goal.scope.value, encode(goal.slo)]
    return [*named, int(ask.explicit), int(ask.turn)]


def claim(reserve: Reserve) -> str:
    """Pack what a call reserves; "" for nothing."""
    if reserve is NO_RESERVE:
        return ""
    of = reserve
    return f"{of.prompt_tokens} {of.output_tokens} {of.engine_us} {of.nanodollars}"


def budget(allowance: Allowance) -> str:
    """Pack a budget; "" for none."""
    if allowance is NO_ALLOWANCE:
        return ""
    return " ".join([_member(getattr(allowance, name)) for name in ALLOWANCE_FIELDS])


def budget_changes(changes: Changes) -> list[str]:
    """Return the arguments of `lua/set_budget.lua`."""
    at_limit = {"at_limit": changes["at_limit"] or AtLimit.REFUSE} if "at_limit" in changes else {}
    new = {**changes, **at_limit}
    return [_member(new[name]) if name in new else "=" for name in ALLOWANCE_FIELDS]


def account(name: str, packed: bytes) -> Account:
    """Parse an account of `budgets`."""
    since, begun, *whole = map(float, packed.split())
    calls, prompt, cached, output, service, nanodollars, open_calls, *held = whole
    return Account(
        name, since, begun, int(calls), int(prompt), int(cached), int(output), service,
        int(nanodollars), int(open_calls), Reserve(*map(int, held)),
    )  # fmt: skip


def _member(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else repr(value)


def _allowance(packed: bytes) -> Allowance:
    *limits, at_limit = packed.decode().split()
    members = {
        name: None if text == "-" else (float(text) if name.endswith("_s") else int(text))
        for name, text in zip(MEMBERS, limits, strict=True)
    }
    return Allowance(**members, at_limit=AtLimit(at_limit))  # type: ignore[arg-type]


def _goal(packed: bytes) -> Goal:
    deadline, begun, calls, scope, slo = packed.split(b"\n", 4)
    return Goal(decode(slo), Scope(decode(scope)), float(deadline), float(begun), int(calls))


def _attributes(row: Mapping[bytes, bytes]) -> tuple[ProgramAttribute, ...]:
    found = []
    for name, packed in row.items():
        if name.startswith(_ATTRIBUTE):
            until_s, _, text = packed.partition(b"\n")
            found.append(
                ProgramAttribute(
                    decode(name.removeprefix(_ATTRIBUTE)), decode(text), float(until_s)
                )
            )
    return tuple(sorted(found, key=lambda attribute: attribute.name))
