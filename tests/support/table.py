"""Helpers for tests of process tables: opening, closing, and a reference table to compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count
from typing import Any

import anyio
import pytest
from weft_gateway.model import Closing, Opening, Outcome, ProgramAttribute, ProgramKey
from weft_gateway.model.slo import NO_GOAL, Ask, Goal, Scope
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.table import ProcessTable

KEY = ProgramKey("public", "p")
KEYS = [ProgramKey("t", f"p{number}") for number in range(4)]
OUTCOMES = (Outcome.OK, Outcome.ERROR, Outcome.REFUSED, Outcome.OK)
_calls = count()
ASKS = (
    None,
    Ask(Goal("report", Scope.PROGRAM, 90.0)),
    Ask(Goal("chat", Scope.TURN, 0.1), turn=True),
    Ask(Goal("chat", Scope.TURN, 8.0)),
    Ask(Goal("日", Scope.CALL, 1e-3), explicit=True),
    Ask(Goal("", Scope.PROGRAM, 1 / 3), explicit=True),
    Ask(Goal("batch"), explicit=True, turn=True),
    Ask(NO_GOAL, turn=True),
)


def opening(key=KEY, *, call=None, replica="r0", sticky=False, now=1.0, **options) -> Opening:
    return Opening(
        key=key,
        call=call or f"call{next(_calls)}",
        thread=options.pop("thread", "main"),
        candidate=replica,
        eligible=options.pop("eligible", frozenset({"r0", "r1"})),
        sticky=sticky,
        now_s=now,
        **options,
    )


def closing(o: Opening, *, now=2.0, outcome=Outcome.OK, **used) -> Closing:
    return Closing(key=o.key, call=o.call, now_s=now, outcome=outcome, **used)


def scenario(
    make_table: Callable[[], ProcessTable],
    steps: Callable[[ProcessTable], Coroutine[Any, Any, None]],
) -> None:
    """Run the steps on a new table, and check its integrity afterwards."""

    async def main() -> None:
        table = make_table()
        try:
            await steps(table)
            assert list(await table.check()) == []
        finally:
            await table.aclose()

    anyio.run(main)


class Twin:
    """A reference table in memory, and the calls that are open in both tables."""

    def __init__(self) -> None:
        self.table = MemoryTable()
        self.now = 1.0
        self.open_calls: list[Opening] = []
        # The predicted costs of the open calls, and their sums by replica.
        self.costs: dict[str, Counter[str]] = {}
        self.work: Counter[str] = Counter()

    async def step(self, table, action, which, flag, amount) -> None:
        """Apply one action to both tables and compare the results."""
        self.now += amount if flag else 0.0
        if action == "open":
            eligible = {f"r{which % 2}", "r1"} if amount < 8 else {"r2"}
            o = opening(
                KEYS[which], replica=f"r{which % 2 if amount < 8 else 2}", sticky=flag,
                now=self.now, thread=f"t{which}", ephemeral=which == 3 and amount < 5,
                eligible=frozenset(eligible),
                parent="" if flag else f"t{which % 2}", ask=ASKS[int(amount * 3) % len(ASKS)],
                costs={f"r{n}": int(amount * 1e6) >> n for n in range(which)},
            )  # fmt: skip
            ours, theirs = await table.open_call(o), await self.table.open_call(o)
            assert (ours.replica, ours.created) == (theirs.replica, theirs.created)
            assert table.in_flight() == self.table.in_flight()
            same(ours.program, theirs.program)
            self.open_calls.append(o)
            cost = o.costs.get(ours.replica, 0)
            self.work += Counter({ours.replica: cost})
            self.costs[o.call] = Counter({ours.replica: cost})
        elif action == "close" and self.open_calls:
            c = closing(
                self.open_calls.pop(which % len(self.open_calls)), now=self.now, service_s=amount,
                waiting_s=amount / 3, output_tokens=int(amount), preemptions=which,
                outcome=OUTCOMES[(flag + 2 * which) % 4],
            )  # fmt: skip
            same(await table.close_call(c), await self.table.close_call(c))
            self.work -= self.costs.pop(c.call)
        elif action == "start":
            ask = ASKS[int(amount * 3) % len(ASKS)]
            ours, theirs = [
                await each.start(KEYS[which], self.now, ask) for each in (table, self.table)
            ]
            same(ours[0], theirs[0])
            assert ours[1] == theirs[1]
        elif action == "tell":
            told = ProgramAttribute(f"n{which % 2}", "x" * which, self.now + amount)
            same(
                *[
                    await each.set_attribute(KEYS[which], told, self.now)
                    for each in (table, self.table)
                ]
            )
        elif action == "end":
            same(*[await each.end(KEYS[which], self.now) for each in (table, self.table)])
        elif action == "expire":
            ours, theirs = [sorted(await each.expire(self.now, amount), key=lambda gone: gone.key)
                            for each in (table, self.table)]  # fmt: skip
            assert [gone[:2] for gone in ours] == [gone[:2] for gone in theirs]
            for mine, other in zip(ours, theirs, strict=True):
                same(mine.program, other.program)
        assert await table.homes() == await self.table.homes()


def same(ours, theirs) -> None:
    """Assert that both are equal, except for rounding in sums."""
    if ours is None or theirs is None:
        assert ours is theirs
        return
    sums = ("service_s", "critical_path_s", "waiting_s")
    for name in sums:
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-9, abs=1e-12)
    threads = [sorted(p.threads, key=lambda t: t.call) for p in (ours, theirs)]
    assert threads[0] == threads[1]
    rest = dict.fromkeys(sums, 0.0)
    assert replace(ours, threads=(), **rest) == replace(theirs, threads=(), **rest)
