"""One tenant's cache hints do not cost another tenant its cache.

The tests run on vLLM's real scheduler and KV-cache manager. Four agents of an honest tenant read
their contexts again in every call; together they need less than half of the cache. Another tenant
calls in between and tries to keep the cache for itself.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand
from weft_engine.tags import Tag

pytestmark = pytest.mark.engine

CACHE = 200
AGENTS = 4
ROUNDS = 12
# Blocks of 16 tokens: 240 of prompt and more in each round, 4 x 20 blocks in the end.
FIRST, GROWTH = 240, 6
ATTACK_TOKENS = 480

ATTACKS: dict[str, dict[str, Any]] = {
    "pins and priority": {"weft_retain": 3600.0, "weft_priority": 4},
    "pins": {"weft_retain": 3600.0},
    "priority": {"weft_priority": 4},
    "all is a system prompt": {"weft_tags": [ATTACK_TOKENS, int(Tag.SYSTEM_PROMPT)]},
    "all is prefilled ahead": {"weft_tags": [ATTACK_TOKENS, int(Tag.PARTIAL_PREFILL)]},
    "nothing is said": {},
}
# Inside one tenant they cost nothing either: pins have a bound, and untagged blocks go first.
HARMLESS = ("pins", "nothing is said")


def honest_round(e: Any, number: int) -> None:
    """Each agent's next call, with its context so far."""
    for agent in range(AGENTS):
        start = 10_000 * (agent + 1)
        length = FIRST + GROWTH * number
        e.add(
            f"h{agent}.{number}", program=f"agent{agent}", tenant="honest", salt="honest",
            prompt=list(range(start, start + length)), tokens=2,
            extra={"weft_tags": [64, int(Tag.SYSTEM_PROMPT), length, int(Tag.USER_QUERY)]},
        )  # fmt: skip
        e.run()


def attack(
    e: Any, name: str, extra: dict[str, Any], *, again: str = "", tenant: str = "attacker"
) -> None:
    """A call of the attacker, with a new context or a previous one."""
    seed = 100_000 + 1000 * int((again or name).removeprefix("x"))
    e.add(
        name, program=again or name, tenant=tenant, salt="attacker",
        prompt=list(range(seed, seed + ATTACK_TOKENS)), tokens=2, extra=extra,
    )  # fmt: skip
    e.run()


def hit_rate(e: Any) -> float:
    """Return the cached fraction of the prompts of honest calls, after each agent's first call."""
    calls = [r for r in e.reports if r.call.startswith("h") and not r.call.endswith(".0")]
    assert len(calls) == AGENTS * (ROUNDS - 1)
    return sum(r.cached_tokens for r in calls) / sum(r.prompt_tokens for r in calls)


def played(
    engine: Any, extra: dict[str, Any] | None, *, stays: bool = False, tenant: str = "attacker"
) -> float:
    """The honest hit rate under an attack: twelve calls at once after the first round, and if it
    stays, one more before each honest round, and its contexts read again. None: no attack.
    tenant: the attacker's."""
    e = engine(policy="fcfs", blocks=CACHE, max_num_seqs=4)
    names = (f"x{number}" for number in count())
    for number in range(ROUNDS):
        if extra is not None and (stays or number == 1):
            for _ in range(12 if number == 1 else 1):
                attack(e, next(names), extra, tenant=tenant)
            if stays and number > 1:
                attack(e, f"x{900 + number}", extra, again=f"x{number}", tenant=tenant)
        honest_round(e, number)
        assert e.scheduler.violations() == []
    attacks = [r for r in e.reports if r.call.startswith("x")]
    expected = 12 + (1 + 2 * (ROUNDS - 2) if stays else 0)
    assert len(attacks) == (0 if extra is None else expected)
    for report in attacks:
        assert set(report.hints) >= {f"{name}=applied" for name in extra or ()}, report.call
    pinned = e.scheduler.state()["kv"]["pinned_blocks_by_tenant"]
    assert set(pinned) == ({tenant} if "weft_retain" in (extra or ()) else set())
    return hit_rate(e)


@pytest.mark.parametrize("stays", [False, True], ids=["twelve calls", "all the time"])
@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_on_the_cache_costs_another_tenant_at_most_a_tenth(engine, kind, stays):
    alone = played(engine, None)
    assert alone > 0.9
    one_tenant = played(engine, ATTACKS[kind], stays=stays, tenant="honest")
    assert (one_tenant < alone - 0.5) is (kind not in HARMLESS), "the attack does no harm"
    assert played(engine, ATTACKS[kind], stays=stays) >= alone - 0.1


def test_priority_over_http_is_bounded_as_well(engine):
    e = engine(policy="fcfs", blocks=CACHE)
    honest_round(e, 0)
    for number in range(12):
        attack(e, f"x{number}", {})
        e.scheduler.obey(Command(kv=KvCommand("priority", f"x{number}", priority=4)))
        e.scheduler.obey(Command(kv=KvCommand("retain", f"x{number}", ttl_s=3600.0)))
    for number in range(1, ROUNDS):
        honest_round(e, number)
    assert hit_rate(e) > 0.9


def test_a_tenant_s_pins_fill_its_share_and_leave_those_of_others(engine):
    e = engine(policy="fcfs", blocks=CACHE, pin_share=0.5)
    e.add("mine", program="mine", tenant="honest", prompt=list(range(320)), tokens=2,
          extra={"weft_retain": 3600.0})  # fmt: skip
    e.run()
    for number in range(12):
        attack(e, f"x{number}", ATTACKS["pins"])
    state = e.scheduler.state()["kv"]
    # A second context of 30 blocks would be more than half of the hundred that may be pinned.
    assert state["pinned_blocks_by_tenant"] == {"honest": 20, "attacker": 30}
    e.add("again", program="mine", tenant="honest", prompt=list(range(320)), tokens=2)
    e.run()
    report = next(r for r in e.reports if r.call == "again")
    assert report.cached_tokens == 304
    assert not [hint for hint in report.hints if "expired" in hint]


def test_a_lone_tenant_has_all_that_may_be_pinned(engine):
    e = engine(policy="fcfs", blocks=CACHE, pin_share=0.5)
    for number in range(12):
        attack(e, f"x{number}", ATTACKS["pins"])
    assert e.scheduler.state()["kv"]["pinned_blocks_by_tenant"] == {"attacker": 90}


def test_an_idle_tenant_s_blocks_serve_the_others(engine):
    """After the cache was reused four times without it, a tenant no longer holds its half."""
    e = engine(policy="fcfs", blocks=CACHE)
    for number in range(6):
        attack(e, f"x{number}", ATTACKS["priority"])

    def read(name: str, number: int) -> int:
        start = 700_000 + 1000 * number
        e.add(name, program=f"r{number}", tenant="honest", prompt=list(range(start, start + 320)),
              tokens=2)  # fmt: skip
        e.run()
        return int(e.reports[-1].cached_tokens)

    for number in range(50):
        read(f"r{number}", number)
    assert [read(f"s{number}", number) for number in range(42, 50)] == [304] * 8
