"""Admission of programs to the cache, on queues with preset sizes; tests/engine has real ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from weft_engine.call_table import CallTable
from weft_engine.orders import build_order
from weft_engine.residents import Residents
from weft_engine.short_calls import ShortCalls
from weft_engine.step_cost import PrefillPace
from weft_engine.wire import CallContext

CACHE = 100
BLOCK = 16


class Engine:
    """An engine with a cache of 100 blocks, 90 of them for residents. A full prefill takes 16 s."""

    def __init__(self, order: str = "resident") -> None:
        self.calls = CallTable(build_order(order, {}))
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.sizes: dict[str, int] = {}
        # Blocks of a context that running calls use.
        self.in_use: dict[str, int] = {}
        self.resident: set[str] = set()
        self.now = 0.0
        self.numbers = count()
        pace = PrefillPace()
        pace.note(1000, 1, 10.0)
        self.short = ShortCalls(self.calls.shares.cost, 8, 4 * BLOCK)
        blocks, tokens = CACHE, CACHE * BLOCK
        self.residents = Residents(self, self.calls, blocks, tokens, self.reside, pace, self.short)

    def reside(self, program: str, resident: bool) -> None:
        assert (program in self.resident) != resident
        (self.resident.add if resident else self.resident.remove)(program)

    def waiting_names(self) -> Iterator[str]:
        return iter(sorted(self.waiting, key=self.calls.rank))

    def running_count(self) -> int:
        return len(self.running)

    def free_slots(self) -> int:
        return 8 - len(self.running)

    def context_blocks(self, sequence: str) -> int:
        return self.sizes[sequence]

    def blocks_to_take(self, sequence: str) -> int:
        return self.sizes[sequence] - self.in_use.get(sequence, 0)

    def come(
        self,
        program: str,
        size: int,
        arrival: float,
        call: str = "",
        service_s: float = 0.0,
        tenant: str = "",
    ) -> str:
        name = call or f"{program}/{next(self.numbers)}"
        self.sizes[name] = size
        context = CallContext(
            name,
            program,
            arrival_s=arrival,
            service_s=service_s,
            tenant=tenant,
        )
        self.calls.arrive(name, context, self.now)
        self.waiting.append(name)
        self.residents.queued(name, self.now)
        return name

    def admit(self) -> list[str]:
        """Admit what the rule allows, one sequence after another, and return it."""
        admitted = []
        self.residents.refresh(self.now)
        while self.waiting and self.residents.admitting != 0:
            name = next(self.waiting_names())
            self.waiting.remove(name)
            self.running.append(name)
            self.calls.start(name, self.now)
            self.residents.started(name)
            admitted.append(name)
            self.residents.refresh(self.now)
        assert self.residents.violations(self.waiting) == []
        return admitted

    def admit_only(self, name: str) -> str:
        assert self.admit() == [name]
        return name

    def end(self, name: str) -> None:
        self.running.remove(name)
        self.residents.left(name, 0, self.now)
        self.calls.leave(name, self.now)
        del self.sizes[name]


def test_a_call_of_another_program_waits_for_memory_that_residents_leave():
    engine = Engine()
    first, second = engine.come("a", 40, 0.0), engine.come("b", 30, 1.0)
    engine.come("c", 40, 2.0)
    assert engine.admit() == [first, second]
    assert engine.resident == {"a", "b"}
    assert engine.residents.deferred == 1
    # Its programs keep their places during a gap.
    engine.end(first)
    assert engine.admit() == []
    engine.residents.ended("a")
    assert engine.admit() == ["c/2"]
    assert engine.resident == {"b", "c"}


def test_a_report_tells_the_wait_for_memory():
    """Two residents are ahead of the first deferred call, and its program is ahead of the next."""
    engine = Engine()
    first, second = engine.come("a", 40, 0.0), engine.come("b", 30, 1.0)
    engine.admit()
    third, fourth = engine.come("c", 40, 2.0), engine.come("d", 50, 3.0)
    engine.now = 1.0
    assert engine.admit() == []
    for now in (2.0, 3.0):
        engine.now = now
        engine.residents.freed()
        assert engine.admit() == []
    calls = [engine.calls.of(name) for name in (first, third, fourth)]
    engine.end(first)
    engine.residents.ended("a")
    engine.now = 5.0
    assert engine.admit() == [third]
    engine.end(second)
    engine.residents.ended("b")
    engine.end(third)
    engine.residents.ended("c")
    engine.now = 9.0
    assert engine.admit() == [fourth]
    reports = [call.report() for call in calls]
    waits = [(r.memory_wait_s, r.memory_tokens, r.programs_ahead) for r in reports]
    assert waits == [(0.0, 0, 0), (4.0, 40 * BLOCK, 2), (8.0, 50 * BLOCK, 3)]


def test_another_order_ends_a_wait_for_memory():
    engine = Engine()
    engine.come("a", 70, 0.0)
    engine.come("b", 60, 1.0)
    engine.admit()
    engine.now = 2.0
    engine.calls.switch(build_order("fcfs", {}), engine.now)
    engine.calls.start("b/1", 5.0)
    report = engine.calls.of("b/1").report()
    assert (report.waiting_s, report.memory_wait_s) == (5.0, 2.0)


def test_small_calls_pass_a_large_one_that_waits():
    engine = Engine()
    engine.come("a", 70, 0.0)
    engine.come("b", 60, 1.0)
    engine.come("one", 10, 2.0, call="one")
    assert engine.admit() == ["a/0", "one"]
    assert engine.residents.deferred == 1


def test_an_idle_engine_admits_a_call_that_does_not_fit():
    engine = Engine()
    first = engine.come("a", 70, 0.0)
    engine.admit()
    engine.come("b", 60, 1.0)
    assert engine.admit() == []
    engine.end(first)
    assert engine.admit() == ["b/1"]


def test_a_resident_s_next_call_comes_before_older_calls_of_other_programs():
    engine = Engine()
    first = engine.come("a", 70, 5.0)
    engine.admit()
    engine.come("b", 60, 9.0)
    engine.come("c", 60, 8.0)
    engine.end(first)
    engine.come("a", 72, 5.0)
    assert engine.admit()[0] == "a/3"


def test_no_call_is_deferred_for_ever():
    """Ten times the time of eight prefills of 16 s."""
    engine = Engine()
    engine.come("a", 70, 0.0)
    engine.admit()
    engine.come("b", 60, 1.0)
    engine.now = 1279.0
    engine.residents.freed()
    assert engine.admit() == []
    assert engine.residents.due <= 1281.0
    engine.now = 1281.0
    assert engine.admit() == ["b/1"]


def test_a_resident_without_a_call_loses_its_place_after_the_limit():
    engine = Engine()
    first = engine.come("a", 70, 0.0)
    engine.admit()
    other = engine.come("b", 20, 1.0)
    engine.admit()
    engine.end(first)
    engine.come("c", 50, 2.0)
    assert engine.admit() == []
    assert engine.residents.due == 32.0
    engine.now = 32.0
    assert engine.admit() == ["c/2"]
    assert engine.resident == {"b", "c"}
    engine.end(other)


def test_the_limit_follows_the_gaps_of_programs():
    engine = Engine()
    assert engine.residents.keep_s == 2 * 16.0
    for gap, expected in ((1.0, 16.0), (20.0, 30.0), (500.0, 16.0)):
        for _ in range(70):
            engine.end(engine.admit_only(engine.come("a", 10, 0.0)))
            engine.now += gap
        assert engine.residents.keep_s == expected


def test_another_order_leaves_no_resident_behind():
    engine = Engine()
    engine.come("a", 40, 0.0)
    engine.come("b", 50, 1.0)
    engine.admit()
    engine.residents.dissolve()
    assert engine.resident == set()
    engine.calls.switch(build_order("fcfs", {}), engine.now)
    assert engine.calls.rank("b/1")[0] == 0


def test_an_emptied_cache_has_its_residents_chosen_anew():
    engine = Engine()
    engine.come("a", 40, 0.0)
    engine.admit()
    engine.resident.clear()
    engine.residents.reset()
    engine.admit()
    assert engine.resident == {"a"}


def test_shared_parts_of_contexts_do_not_count():
    """Nine tenths of each context are also used by other calls."""
    engine = Engine()
    for number in range(60):
        name = engine.come(f"p{number}", 40, float(number))
        engine.admit()
        engine.running.remove(name)
        engine.residents.left(name, 4, engine.now)
        engine.calls.leave(name, engine.now)
        engine.residents.ended(f"p{number}")
    for number in range(10):
        engine.come(f"q{number}", 40, 100.0 + number)
    assert len(engine.admit()) == 10
    assert len(engine.resident) == 10


def test_blocks_that_running_calls_use_do_not_count():
    engine = Engine()
    engine.come("a", 80, 0.0)
    engine.admit()
    engine.in_use[engine.come("b", 80, 1.0)] = 70
    assert engine.admit() == ["b/1"]


def test_a_resident_s_running_call_does_not_count_as_a_guest_too():
    engine = Engine()
    first = engine.come("a", 60, 0.0)
    guest = engine.come("b", 40, 1.0)
    assert engine.admit() == [first, guest]
    engine.end(first)
    engine.residents.ended("a")
    engine.come("c", 50, 2.0)
    engine.come("d", 20, 3.0, call="d")
    assert engine.admit() == ["c/2"]
    assert engine.resident == {"b", "c"}
    # 90 of 100 blocks are reserved, for the call that began as a guest too.
    assert engine.residents.deferred == 1


def test_short_programs_get_free_places_first_once_service_is_known_to_be_heavy_tailed():
    engine = Engine()
    first = engine.come("a", 80, 0.0)
    engine.admit()
    engine.come("long", 50, 1.0, service_s=100.0)
    engine.come("short", 50, 2.0)
    engine.end(first)
    engine.residents.ended("a")
    assert engine.admit()[0] == "short/2"


def test_a_short_single_call_never_waits_for_memory():
    engine = Engine()
    engine.come("a", 90, 0.0)
    engine.admit()
    assert engine.come("guest", 10, 1.0) in engine.admit()
    engine.come("large", 2, 2.0, call="large")
    assert engine.admit() == []
    assert engine.admit_only(engine.come("small", 1, 3.0, call="small"))


def test_tenants_take_turns_for_the_memory_that_residents_leave():
    """The calls of one tenant have the first ranks, as those with the tightest deadlines do. None
    of the programs fits as a resident, and one at a time fits as a guest.
    """
    engine = Engine()
    tight = [engine.come(name, 95, 1.0, tenant="tight") for name in "abc"]
    loose = [engine.come(name, 95, 2.0, tenant="loose") for name in "de"]
    admitted = []
    while engine.waiting:
        (name,) = engine.admit()
        assert not engine.resident
        engine.calls.serve({name: 1}, 1.0, engine.now)
        engine.end(name)
        engine.residents.ended(name.partition("/")[0])
        admitted.append(name)
    assert admitted == [loose[0], tight[0], loose[1], tight[1], tight[2]]


def test_residents_delay_calls_of_other_tenants_no_longer_than_a_prefill():
    engine = Engine()
    engine.come("a", 80, 0.0, tenant="one")
    engine.admit()
    engine.come("b", 80, 1.0, tenant="two")
    assert engine.admit() == []
    assert engine.residents.due <= 16.0
    engine.now = 16.5
    assert engine.admit() == ["b/1"]


def test_calls_behind_many_deferred_ones_are_considered_next():
    engine = Engine()
    engine.come("a", 80, 0.0)
    engine.admit()
    for number in range(30):
        engine.come(f"b{number}", 60, 1.0 + number)
    engine.come("small", 1, 99.0, call="small", service_s=1.0)
    for _ in range(3):
        admitted = engine.admit()
        assert admitted or engine.residents.due <= engine.now + 1e-9
        engine.now = engine.residents.due
    assert admitted == ["small"]


def test_no_call_waits_for_memory_while_evicted_contexts_are_loaded_quickly():
    engine = Engine()
    engine.admit_only(engine.come("a", 60, 0.0))
    loaded = engine.come("b", 50, 1.0, call="b/first")
    assert engine.admit() == []
    # A later call of a program loads its context in a hundredth of the time of computing it.
    engine.come("a", 60, 0.0, call="a/again")
    engine.residents.returned("a/again", computed=40, loaded=960, load_s=0.1)
    engine.residents.freed()
    assert engine.admit()[-1] == loaded


def test_first_calls_do_not_say_what_an_evicted_context_costs():
    engine = Engine()
    first = engine.admit_only(engine.come("a", 60, 0.0))
    engine.residents.returned(first, computed=0, loaded=1000, load_s=0.0)
    engine.come("b", 50, 1.0)
    assert engine.admit() == []
