"""Closed-loop agents of two tenants, over HTTP only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

HONEST = "honest"
ATTACKER = "attacker"


@dataclass(slots=True)
class Times:
    """What a tenant's calls took. seconds: of each good call. errors: of the others, in words."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Attack:
    """How the attacking threads call. programs: one thread's programs in order, given the thread's
    number. more: members of every body."""

    name: str
    programs: Callable[[int], Iterator[str]]
    more: Mapping[str, Any] = field(default_factory=dict)


def _same(name: str) -> Callable[[int], Iterator[str]]:
    def programs(thread: int) -> Iterator[str]:
        while True:
            yield name

    return programs


def _one_each(thread: int) -> Iterator[str]:
    while True:
        yield f"attack-{thread}"


def _fresh(thread: int) -> Iterator[str]:
    return (f"attack-{thread}-{number}" for number in count())


# The columns of the table; the last one also claims to be urgent.
ATTACKS: Sequence[Attack] = (
    Attack("one program", _same("attack")),
    Attack("a program per thread", _one_each),
    Attack("a program per call", _fresh),
    Attack("a program per call, raised", _fresh, {"weft": {"priority": 4, "reuse_priority": 4}}),
)


class Caller:
    """Makes the calls of one tenant. key: its API key."""

    def __init__(self, client: httpx.AsyncClient, base: str, model: str, key: str) -> None:
        self._client = client
        self._url = f"{base}/v1/chat/completions"
        self._model = model
        self._headers = {"authorization": f"Bearer {key}"}
        self.times = Times()

    async def call(
        self, program: str, prompt: str, max_tokens: int, more: Mapping[str, Any] | None = None
    ) -> None:
        """One call, timed; whatever happens is noted in `times`."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            **(more or {}),
        }
        begun = time.monotonic()
        try:
            answer = await self._client.post(
                self._url, json=body, headers={**self._headers, "x-weft-program": program}
            )
        except httpx.HTTPError as error:
            self.times.errors.append(repr(error))
            return
        if answer.status_code == 200:
            self.times.seconds.append(time.monotonic() - begun)
        else:
            self.times.errors.append(f"{answer.status_code} {answer.text[:200]}")

    async def end(self) -> None:
        """End the tenant's programs, so that they are not left in somebody's gateway."""
        url = f"{self._url.removesuffix('/chat/completions')}/sessions"
        while True:
            page = await self._client.get(url, params={"limit": 100}, headers=self._headers)
            alive = [
                session["id"]
                for session in page.raise_for_status().json()["data"]
                if session.get("status") != "finished"
            ]
            if not alive:
                return
            for name in alive:
                await self._client.delete(f"{url}/{name}", headers=self._headers)

    async def session(self, program: str) -> dict[str, Any]:
        """What the gateway knows of one of the tenant's programs."""
        url = f"{self._url.removesuffix('/chat/completions')}/sessions/{program}"
        answer = await self._client.get(url, headers=self._headers)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


async def agent(caller: Caller, program: str, calls: int, max_tokens: int) -> None:
    """An honest agent: one call after another, in one program."""
    for number in range(calls):
        prompt = f"Agent {program}, step {number}: what comes next, and why?"
        await caller.call(program, prompt, max_tokens)


async def attack_forever(caller: Caller, attack: Attack, thread: int, max_tokens: int) -> None:
    """One attacking thread: one call after another until it is cancelled."""
    for number, program in enumerate(attack.programs(thread)):
        prompt = f"Thread {thread}, call {number}: take as much as there is."
        await caller.call(program, prompt, max_tokens, attack.more)


@asynccontextmanager
async def attacking(
    caller: Caller, attack: Attack | None, threads: int, max_tokens: int
) -> AsyncIterator[None]:
    """The attack goes on while the block runs; None: no attack."""
    tasks = [
        asyncio.create_task(attack_forever(caller, attack, thread, max_tokens))
        for thread in range(threads if attack is not None else 0)
        if attack is not None
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
