"""Fair shares between tenants, played on an engine with slots and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.tenant_shares import TenantShares


@dataclass
class Slots:
    """An engine whose calls take whole steps. Tenants keep a number of calls in it; None: they
    end."""

    count: int
    shares: TenantShares = field(default_factory=TenantShares)
    left: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, list[str]] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    _number: int = 0

    def add(self, tenant: str, steps: int, weight: float = 1.0) -> str:
        self._number += 1
        name = f"{tenant}/{self._number}"
        self.shares.arrive(name, tenant, weight)
        self.left[name] = steps
        self.waiting.setdefault(tenant, []).append(name)
        return name

    def fill(self) -> None:
        """Give free slots to those whose turn it is."""
        taken: dict[str, int] = {}
        chosen = []
        while len(self.shares._begun) + len(chosen) < self.count:
            tenant = self.shares.next(taken, set())
            if tenant is None:
                break
            chosen.append(self.waiting[tenant].pop(0))
            taken[tenant] = taken.get(tenant, 0) + 1
        self.shares.restore(taken)
        for name in chosen:
            self.shares.start(name)
            self.begun.append(name)

    def step(self) -> list[str]:
        """One second. The calls that have ended."""
        self.fill()
        self.shares.advance(1.0)
        ended = []
        for name in sorted(self.shares._begun):
            tenant = name.partition("/")[0]
            self.served[tenant] = self.served.get(tenant, 0) + 1
            self.left[name] -= 1
            if not self.left[name]:
                self.shares.leave(name)
                ended.append(name)
        assert self.shares.violations() == []
        return ended


def play(slots: Slots, tenants: dict[str, tuple[float, int, int]], steps: int) -> None:
    """Each tenant has a weight, calls at once and steps a call; a call that ends is followed."""
    for tenant, (weight, calls, length) in tenants.items():
        for _ in range(calls):
            slots.add(tenant, length, weight)
    for _ in range(steps):
        for name in slots.step():
            tenant = name.partition("/")[0]
            weight, _, length = tenants[tenant]
            slots.add(tenant, length, weight)


@pytest.mark.parametrize("count", [1, 3, 4, 16])
@pytest.mark.parametrize("length", [2, 20])
def test_two_tenants_get_half_each_however_many_calls_they_make_and_how_long(count, length):
    slots = Slots(count)
    play(slots, {"many": (1.0, 60, length), "few": (1.0, 16, 5)}, 4000)
    assert slots.served["few"] / slots.served["many"] == pytest.approx(1.0, rel=0.05)
    assert sum(slots.served.values()) == 4000 * count, "no slot is left empty"


@pytest.mark.parametrize("count", [1, 4, 12])
def test_weights_are_kept(count):
    slots = Slots(count)
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    play(slots, {tenant: (weight, 20, 7) for tenant, weight in weights.items()}, 6000)
    total = sum(slots.served.values())
    for tenant, weight in weights.items():
        assert slots.served[tenant] / total == pytest.approx(weight / 8.0, rel=0.05)


def test_a_tenant_that_wants_less_than_its_share_gets_all_of_it_and_the_rest_is_used():
    slots = Slots(4)
    play(slots, {"modest": (1.0, 1, 5), "greedy": (1.0, 30, 5)}, 2000)
    assert slots.served["modest"] == pytest.approx(2000, rel=0.02)
    assert slots.served["greedy"] == pytest.approx(6000, rel=0.02)


def test_free_slots_are_dealt_out_evenly_at_once():
    slots = Slots(6)
    for _ in range(10):
        slots.add("many", 9)
    for _ in range(3):
        slots.add("few", 9)
    slots.fill()
    assert sorted(name.partition("/")[0] for name in slots.begun) == ["few"] * 3 + ["many"] * 3


def test_an_idle_tenant_saves_up_nothing():
    slots = Slots(1)
    slots.add("early", 1)
    slots.step()
    for _ in range(200):
        slots.add("busy", 1)
        slots.step()
    for _ in range(40):
        slots.add("busy", 1)
        slots.add("early", 1)
    slots.begun.clear()
    for _ in range(20):
        slots.step()
    assert 9 <= sum(name.startswith("early") for name in slots.begun) <= 11


def test_a_tenant_that_was_alone_owes_nothing_to_those_that_come_while_it_is_away():
    slots = Slots(2)
    for _ in range(500):
        slots.add("first", 1)
    for _ in range(250):
        slots.step()
    # It is away when the other one comes.
    for _ in range(30):
        slots.add("second", 3)
    slots.step()
    for _ in range(30):
        slots.add("first", 3)
    slots.begun.clear()
    for _ in range(30):
        slots.step()
    assert sum(name.startswith("first") for name in slots.begun) >= 9


def test_a_slot_changes_hands_only_if_the_giver_still_runs_as_many():
    shares = TenantShares()
    for number in range(4):
        shares.arrive(f"a{number}", "a", 1.0)
        shares.start(f"a{number}")
    shares.arrive("b0", "b", 1.0)
    shares.arrive("b1", "b", 1.0)
    shares.arrive("b2", "b", 1.0)
    assert shares.yielding("b", {}, 0, set()) == "a"
    assert shares.yielding("b", {"a": 1}, 1, set()) == "a"
    assert shares.yielding("b", {"a": 2}, 2, set()) is None
    assert shares.yielding("b", {}, 0, {"a"}) is None
    assert shares.heaviest({}, set()) == "a"
    assert shares.heaviest({}, {"a"}) == shares.heaviest({"a": 4}, {"b"}) is None
    for number in range(2):
        shares.stop(f"a{number}")
        shares.start(f"b{number}")
    assert shares.yielding("b", {}, 0, set()) is None
    assert shares.yielding("a", {}, 0, set()) is None
    assert shares.violations() == []


def test_a_tenant_that_received_more_service_takes_no_slot():
    """Tenant b runs one sequence, whose prompt took as long as 20 seconds of tenant a's four."""
    shares = TenantShares()
    for name in ("a0", "a1", "a2", "a3", "b0"):
        shares.arrive(name, name[0], 1.0)
        shares.start(name)
    shares.advance(1.0)
    shares.advance(21.0, {"b0": 2000})
    shares.leave("b0")
    shares.arrive("b1", "b", 1.0)
    assert shares.yielding("b", {}, 0, set()) is None
    shares.advance(1000.0)
    assert shares.yielding("b", {}, 0, set()) == "a"


def test_a_tenant_whose_sequences_never_wait_saves_no_more_than_one_long_sequence():
    slots = Slots(4)
    slots.add("light", 1000)
    for _ in range(200):
        for _ in range(3):
            slots.add("busy", 5)
        slots.step()
    for _ in range(60):
        slots.add("light", 1)
    slots.begun.clear()
    for _ in range(20):
        slots.step()
    assert any(name.startswith("busy") for name in slots.begun)


def test_heavier_tenants_keep_more_slots():
    shares = TenantShares()
    for number in range(4):
        shares.arrive(f"a{number}", "a", 3.0)
        shares.start(f"a{number}")
    shares.arrive("b0", "b", 1.0)
    assert shares.yielding("b", {}, 0, set()) == "a"
    shares.stop("a0")
    shares.start("b0")
    shares.arrive("b1", "b", 1.0)
    assert shares.yielding("b", {}, 0, set()) is None
    assert shares.yielding("a", {}, 0, set()) is None


def test_the_quantum_follows_how_long_sequences_run():
    slots = Slots(2)
    play(slots, {"a": (1.0, 4, 40), "b": (1.0, 4, 40)}, 4000)
    assert 16 <= slots.shares.quantum_s <= 64


EVENTS = st.lists(
    st.tuples(st.sampled_from("aasplvfwn"), st.integers(0, 11), st.floats(0.0, 3.0)), max_size=80
)


@given(EVENTS)
@settings(max_examples=200, deadline=None)
def test_whatever_happens_the_next_tenant_is_the_one_with_the_least_key(events):
    shares = TenantShares()
    waiting: set[str] = set()
    running: set[str] = set()
    for kind, number, amount in events:
        name, tenant = f"s{number}", f"t{number % 4}"
        if kind == "a" and name not in waiting | running:
            shares.arrive(name, tenant, 1.0 + number % 4)
            waiting.add(name)
        elif kind == "s" and name in waiting:
            shares.start(name)
            waiting.remove(name)
            running.add(name)
        elif kind == "p" and name in running:
            shares.stop(name)
            running.remove(name)
            waiting.add(name)
        elif kind == "l" and name in waiting | running:
            shares.leave(name)
            waiting.discard(name)
            running.discard(name)
        elif kind == "v":
            shares.advance(amount)
        elif kind == "f":
            shares.advance(amount, {name: 100 * number, "gone": 7} if number % 3 else {})
        elif kind == "w" and name in waiting | running:
            again = f"{name}/again"
            shares.arrive(again, tenant, 0.5 + amount)
            shares.leave(again)
        elif kind == "n":
            keys = {
                t: shares._key(shares._tenants[t]) for t in {f"t{int(s[1:]) % 4}" for s in waiting}
            }
            found = shares.next({}, set())
            assert (found is None) == (not keys)
            if found is not None:
                assert keys[found] == pytest.approx(min(keys.values()))
        assert shares.violations() == []
        assert shares.contended == (len({int(s[1:]) % 4 for s in waiting | running}) > 1)
        # The virtual time is the mean of what active tenants were charged.
        active = {shares.tenant_of(s) for s in waiting | running}
        if active:
            weighted = sum(shares._tenants[t].weight * shares.charge(t) for t in active)
            weights = sum(shares._tenants[t].weight for t in active)
            assert shares.virtual_time == pytest.approx(weighted / weights, abs=1e-6)


def test_the_prefill_of_a_step_is_charged_to_the_tenant_that_caused_it():
    """Steps take a second, and three with a prompt of 100 tokens. Three sequences run."""
    shares = TenantShares()
    for name in ("a0", "b0", "b1"):
        shares.arrive(name, name[0], 1.0)
        shares.start(name)
    before = shares.virtual_time
    for _ in range(50):
        shares.advance(1.0, {})
        shares.advance(3.0, {"a0": 100})
    assert shares.charge("a") == pytest.approx(100 + 50 * 2 * 3, rel=0.01)
    assert shares.charge("b") == pytest.approx(2 * 100, rel=0.01)
    assert 2 * (shares.virtual_time - before) == pytest.approx(3 * 50 * 4)


def test_no_tenant_starves_among_a_thousand():
    slots, random = Slots(8), Random(1)
    for number in range(1000):
        slots.add(f"t{number}", random.randint(1, 9), random.choice([0.5, 1.0, 4.0]))
    for _ in range(50):
        slots.add("greedy", 9, 100.0)
    for _ in range(1000):
        for name in slots.step():
            if name.startswith("greedy"):
                slots.add("greedy", 9, 100.0)
    begun = {name.partition("/")[0] for name in slots.begun}
    assert len(begun) == 1001
