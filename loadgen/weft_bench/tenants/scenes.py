"""Two attacks on an honest tenant: for engine time, and for the KV cache."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import httpx

from weft_bench.stats import mean
from weft_bench.tenants.agents import ATTACKER, ATTACKS, HONEST, Attack, Caller, agent, attacking

# The attack runs for so long before the honest tenant is measured, seconds.
_SETTLE_S = 2.0
# The pinning attack: so many calls, each of which pins and raises its blocks.
_PINNING_CALLS = 12
_PINNED = {"weft": {"retain_s": 3600, "reuse_priority": 4}}
# Of the whole cache: what the honest agents' contexts take, and what the attacker's prompts take.
_HONEST_SHARE = 0.4
_ATTACK_SHARE = 1.2
_HONEST_AGENTS = 4


@dataclass(frozen=True, slots=True)
class Column:
    """One cell of the table: the honest tenant's mean call, seconds, and calls that failed."""

    attack: str
    honest_s: float
    calls: int
    errors: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The honest tenant's hit rate before and after the pinning attack."""

    before: float
    after: float
    errors: Sequence[str] = field(default_factory=list)


async def contend(
    client: httpx.AsyncClient,
    base: str,
    model: str,
    *,
    agents: int,
    threads: int,
    calls: int,
    max_tokens: int,
) -> list[Column]:
    """The honest tenant alone, then under each attack. calls: of each honest agent."""
    found = []
    attacks: list[Attack | None] = [None, *ATTACKS]
    for attack in attacks:
        run = uuid4().hex[:6]
        honest = Caller(client, base, model, f"{HONEST}-{run}")
        attacker = Caller(client, base, model, f"{ATTACKER}-{run}")
        async with attacking(attacker, attack, threads, max_tokens):
            await asyncio.sleep(_SETTLE_S if attack is not None else 0)
            await asyncio.gather(
                *(agent(honest, f"honest-{number}", calls, max_tokens) for number in range(agents))
            )
        name = "alone" if attack is None else attack.name
        times = honest.times
        errors = [*times.errors, *attacker.times.errors]
        await attacker.end()
        await honest.end()
        found.append(Column(name, mean(times.seconds), len(times.seconds), errors))
    return found


async def pin(
    client: httpx.AsyncClient,
    base: str,
    model: str,
    *,
    cache_tokens: int,
    context: int,
    tokens_per_word: float,
    rounds: int,
) -> Pinned:
    """Honest agents read their contexts again and again; in between, the attacker pins what it
    can. cache_tokens: the engine's prefix cache. context: the model's longest prompt."""
    run = uuid4().hex[:6]
    honest = Caller(client, base, model, f"{HONEST}-{run}")
    attacker = Caller(client, base, model, f"{ATTACKER}-{run}")
    # Words are tokens only about.
    longest = int(context * 0.9) - 64
    own = min(longest, int(cache_tokens * _HONEST_SHARE / _HONEST_AGENTS))
    theirs = min(longest, int(cache_tokens * _ATTACK_SHARE / _PINNING_CALLS))

    async def read() -> None:
        for number in range(_HONEST_AGENTS):
            text = words(f"{run} honest {number}", own, tokens_per_word)
            await honest.call(f"honest-{number}", text, 1)

    await read()
    before = await _hit_rate(honest, rounds, read)
    for number in range(_PINNING_CALLS):
        text = words(f"{run} attack {number}", theirs, tokens_per_word)
        await attacker.call(f"attack-{number}", text, 1, _PINNED)
    after = await _hit_rate(honest, rounds, read)
    await attacker.end()
    await honest.end()
    return Pinned(before, after, [*honest.times.errors, *attacker.times.errors])


async def _hit_rate(honest: Caller, rounds: int, read: Callable[[], Awaitable[None]]) -> float:
    prompt, cached = await _read_tokens(honest)
    for _ in range(rounds):
        await read()
    prompt_after, cached_after = await _read_tokens(honest)
    return (cached_after - cached) / max(1, prompt_after - prompt)


async def _read_tokens(honest: Caller) -> tuple[int, int]:
    sessions = [await honest.session(f"honest-{n}") for n in range(_HONEST_AGENTS)]
    return sum(s["prompt_tokens"] for s in sessions), sum(s["cached_tokens"] for s in sessions)


def words(seed: str, tokens: int, tokens_per_word: float) -> str:
    """Text of about so many tokens; another seed shares no prefix with it."""
    words = max(1, int(tokens / tokens_per_word))
    return f"{seed}: " + " ".join(f"w{number}" for number in range(words))
