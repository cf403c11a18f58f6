"""Two attacks on an honest tenant: on engine time and on the KV cache."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from weft_bench.cli.parts import TenantsOptions
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import engines
from weft_bench.stats import mean, percentile
from weft_bench.tenants.agents import Attack, Caller, agent, attacking

# Unmeasured calls of each honest agent, also without an attack, because an engine's first steps are
# slow.
_LEAD_CALLS = 2
# Time limit for an attack to take effect.
_LEAD_S = 120.0
# Time limit of a repeat. A longer repeat is stopped, and its mean is only a lower bound.
_REPEAT_S = 120.0
# Calls of the pinning attack before the honest hit rate is measured.
_PINNING_CALLS = 12
# Shares of the whole cache: the honest agents' contexts, and the first pinning calls.
_HONEST_SHARE = 0.4
_ATTACK_SHARE = 1.2
_HONEST_AGENTS = 4

# API keys of the honest and the attacking tenant of each run.
PAIRS: Final = tuple((f"honest-{run}", f"attacker-{run}") for run in range(1024))


@dataclass(frozen=True, slots=True)
class Target:
    """The attacked gateway.

    context: the model's longest prompt in tokens. cache_tokens: size of the engine's prefix cache.
    tokens_per_word: of `words`. keys: API keys of the next tenants.
    """

    client: Client
    model: str
    context: int
    cache_tokens: int
    tokens_per_word: float
    keys: Iterator[tuple[str, str]] = field(default_factory=lambda: iter(PAIRS))

    def tenants(self, attack: Attack | None) -> tuple[Caller, Caller]:
        """Return an honest and an attacking tenant that are new to the gateway."""
        honest, attacker = next(self.keys)
        if attack is not None and attack.control:
            attacker = honest
        make = partial(Caller, self.client, self.model)
        return make(honest), make(attacker)

    def words(self, seed: str, tokens: int) -> str:
        """Return text of about `tokens` tokens. Different seeds share no prefix."""
        return words(seed, tokens, self.tokens_per_word)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt of `words`, which only estimates tokens."""
        return int(self.context * 0.9) - 64

    async def pinned_blocks(self) -> int:
        """Return the number of pinned KV blocks in the engines."""
        state = (await self.client.get("/weft/state")).json()
        kv = [engine.get("kv", {}) for engine in engines(state)]
        return sum(sum(one.get("pinned_blocks_by_tenant", {}).values()) for one in kv)


@dataclass(slots=True)
class Column:
    """The honest tenant's calls during one attack, or alone.

    repeats: seconds of each call. served, refused, tokens: of the attacker. in_flight: its calls
    without an answer at the end of the repeats. why: cause of a refused call. stopped: repeats that
    reached the time limit. errors: of honest calls.
    """

    attack: str
    control: bool = False
    repeats: list[list[float]] = field(default_factory=list)
    served: int = 0
    refused: int = 0
    tokens: int = 0
    in_flight: int = 0
    why: str = ""
    stopped: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def means(self) -> list[float]:
        """The mean call of each repeat."""
        return [mean(seconds) for seconds in self.repeats]

    @property
    def mean_s(self) -> float:
        """The mean of all calls."""
        return mean([one for seconds in self.repeats for one in seconds])

    @property
    def p95_s(self) -> float:
        """The 95th percentile of all calls."""
        return percentile([one for seconds in self.repeats for one in seconds], 0.95)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The honest tenant's hit rate before and during the pinning attack.

    pinned_blocks: at the attack's end. served, refused: calls of the attacker.
    """

    attack: str
    control: bool
    before: float
    during: float
    pinned_blocks: int
    served: int
    refused: int
    errors: Sequence[str] = ()


async def contend(
    target: Target, attack: Attack | None, options: TenantsOptions, column: Column
) -> None:
    """Add a repeat to a column. attack: None for the honest tenant alone."""
    honest, attacker = target.tenants(attack)

    async def play(calls: int) -> None:
        named = [f"honest-{number}" for number in range(options.agents)]
        await asyncio.gather(*(agent(honest, name, calls, options.max_tokens) for name in named))

    def prompt(begin: str) -> str:
        if attack is not None and attack.long:
            return target.words(begin, target.longest)
        return f"{begin}: take as much as there is."

    async with AsyncExitStack() as stack:
        if attack is not None:
            tokens = 1 if attack.long else options.max_tokens
            await stack.enter_async_context(
                attacking(attacker, attack, options.threads, tokens, prompt)
            )
            await _served(attacker, 1)
        try:
            async with asyncio.timeout(_REPEAT_S):
                await play(_LEAD_CALLS)
                honest.forget()
                attacker.forget()
                await play(options.calls)
        except TimeoutError:
            column.stopped += 1
        column.repeats.append(honest.seconds)
        column.errors += honest.errors
        column.served += len(attacker.seconds)
        column.refused += len(attacker.errors)
        column.tokens += attacker.tokens
        column.in_flight += attacker.in_flight
        column.why = next(iter(attacker.errors), column.why)
    await attacker.end()
    await honest.end()


async def pin(target: Target, attack: Attack, rounds: int) -> Pinned:
    """Let honest agents reread their contexts, first alone, then while an attacker pins blocks."""
    honest, attacker = target.tenants(attack)
    own = min(target.longest, int(target.cache_tokens * _HONEST_SHARE / _HONEST_AGENTS))
    theirs = min(target.longest, int(target.cache_tokens * _ATTACK_SHARE / _PINNING_CALLS))

    async def read() -> None:
        for number in range(_HONEST_AGENTS):
            text = target.words(f"{honest.key} {number}", own)
            await honest.call(f"honest-{number}", text, 1)

    async def hit_rate() -> float:
        prompt, cached = await _read_tokens(honest)
        for _ in range(rounds):
            await read()
        prompt_after, cached_after = await _read_tokens(honest)
        return (cached_after - cached) / max(1, prompt_after - prompt)

    await read()
    before = await hit_rate()
    async with attacking(attacker, attack, 1, 1, lambda begin: target.words(begin, theirs)):
        await _served(attacker, _PINNING_CALLS)
        during = await hit_rate()
        pinned = await target.pinned_blocks()
    served, refused = len(attacker.seconds), len(attacker.errors)
    await attacker.end()
    await honest.end()
    return Pinned(
        attack.name, attack.control, before, during, pinned, served, refused, honest.errors
    )


async def _served(attacker: Caller, calls: int) -> None:
    """Wait until the attack takes effect. If it never does, its counts show it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAD_S):
            while len(attacker.seconds) < calls:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def _read_tokens(honest: Caller) -> tuple[int, int]:
    sessions = [await honest.session(f"honest-{n}") for n in range(_HONEST_AGENTS)]
    return sum(s["prompt_tokens"] for s in sessions), sum(s["cached_tokens"] for s in sessions)


def words(seed: str, tokens: int, tokens_per_word: float) -> str:
    """See `Target.words`."""
    count = max(1, int(tokens / tokens_per_word))
    # All words have the same number of tokens.
    return f"{seed}: " + " ".join(f"w{10 + number % 90}" for number in range(count))
