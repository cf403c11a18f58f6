"""Cache lookups, their timing, and deferred calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.cache_affinity import CacheAffinity, ContextSnapshot
from weft_engine.call_table import CallTable
from weft_engine.orders import build_order
from weft_engine.wire import CallContext

OPTIONS = {"queues": 4, "first_quantum_s": 2.0, "growth": 2.0, "beta": 2.0, "reserve_factor": 1.0}
TOKENS = 1000


@dataclass
class FakeCache:
    """A queue and a cache with preset answers."""

    calls: CallTable = field(default_factory=lambda: CallTable(build_order("warm_plas", OPTIONS)))
    contexts: dict[str, ContextSnapshot] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    free: int = 100
    asked: list[str] = field(default_factory=list)
    chains: dict[str, str] = field(default_factory=dict)
    # The order of the last sort; None: always sorted.
    sorted_last: list[str] | None = None

    def waiting_names(self) -> list[str]:
        if self.sorted_last is None:
            return sorted(self.contexts, key=self.calls.rank)
        arrived = [name for name in self.contexts if name not in self.sorted_last]
        return [name for name in self.sorted_last if name in self.contexts] + arrived

    def waiting_count(self) -> int:
        return len(self.contexts)

    def sort(self) -> None:
        self.sorted_last = sorted(self.contexts, key=self.calls.rank)

    def running_count(self) -> int:
        return len(self.running)

    def free_blocks(self) -> int:
        return self.free

    def context_snapshot(self, sequence: str) -> ContextSnapshot:
        self.asked.append(sequence)
        return self.contexts[sequence]

    def chain_of(self, sequence: str) -> str:
        return self.chains.get(sequence, sequence * 100)

    def still_cached(self, sequence: str, tokens: int) -> bool:
        return self.contexts[sequence].cached == tokens


@dataclass
class Scene:
    """An engine that only reports events."""

    cache: FakeCache = field(default_factory=FakeCache)
    affinity: CacheAffinity = field(init=False)

    def __post_init__(self) -> None:
        self.affinity = CacheAffinity(self.cache, self.cache.calls, TOKENS)
        # A millisecond per token: reservations last a second.
        self.affinity.served(1000, 1, 1.0)

    def come(
        self,
        name: str,
        cached: int,
        uncached: int,
        blocks: int = 0,
        now: float = 0.0,
        program: str = "",
        chain: str = "",
        tenant: str = "",
    ) -> None:
        self.cache.contexts[name] = ContextSnapshot(cached, uncached, blocks)
        self.cache.chains[name] = chain or name * 100
        context = CallContext(name, program or name, tenant=tenant)
        self.cache.calls.arrive(name, context, now)
        self.affinity.queued(name)

    def start(self, name: str, now: float = 0.0) -> None:
        del self.cache.contexts[name]
        self.cache.running.add(name)
        self.affinity.started(name)
        self.cache.calls.start(name, now)

    def end(self, name: str, blocks: int, now: float = 0.0) -> None:
        self.cache.running.discard(name)
        self.affinity.left(name, blocks, now)
        self.cache.calls.leave(name, now)

    def order(self) -> list[str]:
        return self.cache.waiting_names()


def test_the_warm_one_goes_first_and_is_not_looked_up_while_nothing_happens():
    scene = Scene()
    scene.come("cold", 0, 5000)
    scene.come("warm", 5000, 10)
    scene.affinity.refresh(0.0)
    assert scene.order() == ["warm", "cold"]
    scene.cache.asked.clear()
    scene.affinity.refresh(1.0)
    assert scene.cache.asked == []


def test_a_call_that_lost_its_context_loses_its_place_when_blocks_move():
    scene = Scene()
    scene.come("a", 5000, 10)
    scene.come("b", 4000, 10)
    scene.affinity.refresh(0.0)
    assert scene.order() == ["a", "b"]
    scene.cache.contexts["a"] = ContextSnapshot(0, 5010, 0)
    scene.affinity.freed()
    scene.affinity.refresh(1.0)
    assert scene.order() == ["b", "a"]


def test_few_are_looked_up_at_once_but_new_calls_always_are():
    scene = Scene()
    for number in range(50):
        scene.come(f"{number:02}", 0, 5000)
    scene.affinity.refresh(0.0)
    assert len(scene.cache.asked) == 50
    scene.cache.asked.clear()
    scene.affinity.freed()
    scene.affinity.refresh(1.0)
    assert scene.cache.asked == []
    for name in scene.cache.contexts:
        scene.cache.contexts[name] = ContextSnapshot(10, 4990, 0)
    scene.affinity.freed()
    scene.affinity.refresh(2.0)
    assert scene.cache.asked == [f"{number:02}" for number in range(8)]


def test_a_reservation_defers_a_cold_call_until_it_expires():
    scene = Scene()
    scene.come("away", 0, 100)
    scene.come("runs", 0, 100)
    scene.start("away")
    scene.start("runs")
    scene.end("away", 60, now=10.0)
    scene.come("cold", 0, 1000, 50, now=10.0)
    scene.come("small", 0, 10, 5, now=10.0)
    scene.affinity.refresh(10.0)
    assert scene.order() == ["small", "cold"]
    assert (scene.affinity.deferred, scene.affinity.admitting, scene.affinity.due) == (1, 1, 11.0)
    scene.affinity.refresh(10.5)
    assert scene.affinity.deferred == 1
    scene.affinity.refresh(11.0)
    assert (scene.affinity.deferred, scene.affinity.admitting) == (0, None)
    assert scene.affinity.due == math.inf
    assert scene.affinity.kept_blocks == 0


def test_no_call_is_deferred_beyond_beta_times_a_reservation():
    scene = Scene()
    scene.come("runs", 0, 100)
    scene.start("runs")
    scene.come("cold", 0, 1000, 50, now=0.0)
    for second in range(5):
        scene.come("away", 0, 1, now=float(second))
        scene.start("away", float(second))
        scene.end("away", 60, now=float(second))
        scene.affinity.refresh(float(second))
        assert scene.affinity.deferred == (second < 2)


def test_a_reservation_of_another_tenant_defers_a_call_only_until_it_expires():
    """Alone, a call is held back for beta (2) times as long."""
    scene = Scene()
    scene.come("runs", 0, 100, tenant="greedy")
    scene.start("runs")
    scene.come("cold", 0, 1000, 50, now=0.0, tenant="honest")
    for step in range(10):
        now = step / 2
        scene.come("away", 0, 1, now=now, tenant="greedy")
        scene.start("away", now)
        scene.end("away", 60, now=now)
        scene.affinity.refresh(now)
        assert scene.affinity.deferred == (now < 1), now


def test_threads_of_a_program_have_separate_reservations():
    scene = Scene()
    # A call continues the context of another one, as threads of this program do.
    for number in range(2):
        scene.come(f"{number}", 0, 100, program="p", chain="a" * 50)
        scene.start(f"{number}")
        scene.end(f"{number}", 40)
    for thread in "abr":
        scene.come(thread, 0, 100, program="p", chain=thread * 50)
        scene.start(thread)
    scene.end("a", 40)
    scene.end("b", 30)
    assert scene.affinity.kept_blocks == 70
    scene.come("cold", 0, 1000, 31)
    scene.affinity.refresh(0.0)
    assert scene.affinity.deferred == 1
    # The continuing thread claims its reservation.
    scene.come("a2", 800, 10, 1, program="p", chain="a" * 51)
    scene.affinity.refresh(0.0)
    scene.start("a2")
    assert scene.affinity.kept_blocks == 30
    scene.affinity.ended("p")
    assert scene.affinity.kept_blocks == 0


def held_back():
    """A cold call is deferred for the reservation of another program."""
    scene = Scene()
    scene.come("runs", 0, 100)
    scene.start("runs")
    scene.come("away", 0, 100)
    scene.start("away")
    scene.end("away", 60)
    scene.come("cold", 0, 1000, 50)
    scene.affinity.refresh(0.0)
    return scene


def test_a_program_that_ends_loses_its_reservation():
    scene = held_back()
    assert scene.affinity.deferred == 1
    scene.affinity.ended("away")
    scene.affinity.refresh(0.1)
    assert scene.affinity.deferred == 0


def test_a_report_tells_the_wait_for_reserved_blocks():
    scene = held_back()
    scene.come("colder", 0, 2000, 60)
    calls = [scene.cache.calls.of(name) for name in ("cold", "colder")]
    scene.affinity.refresh(0.1)
    scene.affinity.refresh(0.25)
    scene.affinity.ended("away")
    scene.affinity.refresh(0.5)
    waits = [(c.memory_wait_s, c.memory_tokens, c.programs_ahead) for c in calls]
    assert waits == [(0.5, 1000, 1), (0.4, 2000, 2)]


def test_an_emptied_cache_ends_a_wait_for_memory():
    scene = held_back()
    scene.affinity.reset(0.5)
    scene.affinity.refresh(2.0)
    assert scene.cache.calls.of("cold").memory_wait_s == 0.5


def test_an_emptied_cache_keeps_nothing_and_is_looked_up_anew():
    scene = held_back()
    scene.affinity.reset()
    assert (scene.affinity.kept_blocks, scene.affinity.deferred) == (0, 0)
    scene.cache.asked.clear()
    scene.affinity.refresh(0.1)
    assert scene.cache.asked == ["cold"]


def crowd(large: int, small: int) -> Scene:
    """Blocks are reserved for a program between calls. Large cold calls that would take them wait
    before small ones. The queue is sorted after each refresh, as in the scheduler."""
    scene = Scene()
    scene.cache.free = 10_000
    scene.come("runs", 0, 100)
    scene.start("runs")
    scene.come("away", 0, 100)
    scene.start("away")
    scene.end("away", 200)
    for number in range(large):
        scene.come(f"large {number:03}", 0, 3000, 9_900)
    for number in range(small):
        scene.come(f"small {number:03}", 0, 3000, 1)
    scene.cache.sort()
    return scene


def admit(scene: Scene, now: float) -> int:
    """One step with slots for all: those are admitted that may be. How many."""
    scene.affinity.refresh(now)
    scene.cache.sort()
    names = scene.cache.waiting_names()
    for name in names[: scene.affinity.admitting]:
        scene.start(name, now)
    return len(names) - len(scene.cache.contexts)


def test_a_deferred_call_does_not_stop_smaller_ones_behind_it():
    scene = crowd(large=1, small=300)
    admitted = [admit(scene, 0.001 * step) for step in range(60)]
    assert sum(admitted) == 300
    assert min(admitted[:30]) > 0
    assert scene.order() == ["large 000"]
    assert scene.affinity.deferred == 1


def test_many_deferred_calls_do_not_stop_the_others():
    scene = crowd(large=20, small=30)
    for step in range(12):
        admit(scene, 0.001 * step)
    assert scene.affinity.deferred == 20
    assert len(scene.cache.contexts) == 20


def test_deferred_calls_stay_deferred_at_every_refresh():
    scene = crowd(large=1, small=20)
    for step in range(8):
        scene.affinity.freed()
        scene.affinity.refresh(0.001 * step)
        assert scene.affinity.deferred == 1, step
        scene.cache.sort()


def test_nothing_is_looked_up_while_all_waiting_calls_are_deferred():
    scene = crowd(large=3, small=0)
    scene.affinity.refresh(0.0)
    scene.cache.sort()
    assert (scene.affinity.deferred, scene.affinity.admitting) == (3, 0)
    assert scene.affinity.due > 0.5


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["come", "start", "end", "back", "look"]),
        st.integers(0, 9),
        st.integers(0, 3000),
        st.integers(0, 60),
    ),
    max_size=60,
)


@given(EVENTS)
@settings(deadline=None)
def test_after_any_events_the_state_is_consistent_and_a_call_may_proceed(events):
    scene, now = Scene(), 0.0
    for number, (what, which, tokens, blocks) in enumerate(events):
        now += 0.3
        name = f"{which}"
        if what == "come" and name not in scene.cache.contexts and name not in scene.cache.running:
            scene.come(name, tokens, 3000 - tokens, blocks, now)
        elif what == "start" and name in scene.cache.contexts:
            scene.start(name, now)
        elif what == "end" and (name in scene.cache.running or name in scene.cache.contexts):
            scene.end(name, blocks, now)
            scene.cache.contexts.pop(name, None)
        elif what == "back" and name in scene.cache.running:
            scene.cache.running.discard(name)
            scene.cache.contexts[name] = ContextSnapshot(tokens, 3000 - tokens, blocks)
            scene.cache.calls.preempt(name, now)
            scene.affinity.queued(name)
        else:
            scene.affinity.refresh(now)
            waiting, affinity = scene.order(), scene.affinity
            if affinity.admitting is not None:
                assert affinity.deferred > 0
                assert affinity.due > now
                assert affinity.admitting + affinity.deferred <= len(waiting)
                assert scene.cache.running or affinity.admitting
        assert scene.affinity.violations(scene.cache.contexts) == [], number


def test_a_warm_call_promoted_between_refreshes_is_looked_up_next():
    scene = Scene()
    call_table = scene.cache.calls
    # More warm ones than are looked up at once; the last has the worst queue.
    for place in range(9):
        service, waiting = (3.0, 0.0) if place < 8 else (30.0, 59.0)
        name = f"w{place}"
        context = CallContext(name, name, service_s=service, waiting_s=waiting)
        scene.cache.contexts[name] = ContextSnapshot(600, 300, 1)
        call_table.arrive(name, context, 0.0)
        scene.affinity.queued(name)
    scene.cache.running.add("somebody")
    scene.affinity.refresh(0.0)
    assert "w8" not in scene.affinity._warm.best(8)
    call_table.promote(2.0)
    # Nothing came or left, so nothing is looked up; then the queues are sorted.
    scene.affinity.refresh(2.0)
    call_table.moved.clear()
    found = scene.affinity._warm.best(9)
    assert found == sorted(scene.cache.contexts, key=call_table.rank)
    assert found[0] == "w8"
