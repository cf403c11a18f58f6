"""Closed-loop agents of two tenants, over HTTP only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from weft_bench.drive.client import Client, Refused
from weft_bench.drive.gateway import CHAT, session


@dataclass(frozen=True, slots=True)
class Attack:
    """The calls of the attacking threads.

    program: the program of a call, by the numbers of the thread and of its call. more: members of
    every body. threads: 0 for the bench's number. long: prompts as long as the model's context, and
    one token of answer. control: uses the honest tenant's key, so that no separate share limits the
    attack.
    """

    name: str
    program: str
    more: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 0
    long: bool = False
    control: bool = False


_THREAD: Final = "attack-{thread}"
_CALL: Final = "attack-{thread}-{number}"
_RAISED: Final = {"weft": {"priority": 4, "reuse_priority": 4}}
# Attacks on engine time. "Raised" also claims a high priority.
ATTACKS: Final[Sequence[Attack]] = (
    Attack("one program", "attack"),
    Attack("a program per thread", _THREAD),
    Attack("a program per call", _CALL),
    Attack("a program per call, raised", _CALL, _RAISED),
    Attack("1 thread of long prompts", _CALL, threads=1, long=True),
    Attack("4 threads of long prompts", _CALL, threads=4, long=True),
    Attack("control: one key, a program per call, raised", _CALL, _RAISED, control=True),
)
# Attacks on the KV cache: each call pins its blocks and raises their priority.
_PINNED: Final = {"weft": {"retain_s": 3600, "reuse_priority": 4}}
PINS: Final[Sequence[Attack]] = (
    Attack("pins", _CALL, _PINNED, threads=2),
    Attack("control: one key, pins", _CALL, _PINNED, threads=2, control=True),
)


class Caller:
    """Makes and records the calls of one tenant.

    key: its API key. seconds: of each served call. errors: of the other calls, as text. tokens: of
    prompts and answers of served calls. in_flight: calls without an answer yet.
    """

    def __init__(self, client: Client, model: str, key: str) -> None:
        self._client = client
        self._model = model
        self._headers = {"authorization": f"Bearer {key}"}
        self.key = key
        self.in_flight = 0
        self.forget()

    def forget(self) -> None:
        """Discard the records of all calls so far."""
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self.tokens = 0

    async def call(
        self, program: str, prompt: str, max_tokens: int, more: Mapping[str, Any] | None = None
    ) -> None:
        """Make one call."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            **(more or {}),
        }
        self.in_flight += 1
        try:
            headers = {**self._headers, "x-weft-program": program}
            answer = await self._client.post(CHAT, body, headers)
            self.tokens += answer.json()["usage"]["total_tokens"]
            self.seconds.append(answer.ended_s - answer.sent_s)
        except (OSError, Refused) as error:
            self.errors.append(str(error) or repr(error))
        finally:
            self.in_flight -= 1

    async def end(self) -> None:
        """End the tenant's programs, so that they do not remain in the gateway."""
        while True:
            page = await self._client.get("/v1/sessions?limit=100", self._headers)
            alive = [one["id"] for one in page.json()["data"] if one.get("status") != "finished"]
            if not alive:
                return
            for name in alive:
                await self._client.delete(session(name), self._headers)

    async def session(self, program: str) -> dict[str, Any]:
        """Return the gateway's record of one of the tenant's programs."""
        found: dict[str, Any] = (await self._client.get(session(program), self._headers)).json()
        return found


async def agent(caller: Caller, program: str, calls: int, max_tokens: int) -> None:
    """Run an honest agent: sequential calls in one program."""
    for number in range(calls):
        prompt = f"Agent {program}, step {number}: what comes next, and why?"
        await caller.call(program, prompt, max_tokens)


async def attack_forever(
    caller: Caller, attack: Attack, thread: int, max_tokens: int, prompt: Callable[[str], str]
) -> None:
    """Run one attacking thread: sequential calls until it is cancelled."""
    for number in count():
        program = attack.program.format(thread=thread, number=number)
        text = prompt(f"Thread {thread}, call {number}")
        await caller.call(program, text, max_tokens, attack.more)


@asynccontextmanager
async def attacking(
    caller: Caller, attack: Attack, threads: int, max_tokens: int, prompt: Callable[[str], str]
) -> AsyncIterator[None]:
    """Attack during the block. prompt: returns a call's text for its first words."""
    tasks = [
        asyncio.create_task(attack_forever(caller, attack, thread, max_tokens, prompt))
        for thread in range(attack.threads or threads)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
