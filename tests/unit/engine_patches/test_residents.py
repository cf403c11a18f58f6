"""Admission of programs to the cache, on queues with preset sizes; tests/engine has real ones."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import count

import pytest
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
        self.hashes: dict[str, list[bytes]] = {}
        self.resident: set[str] = set()
        self.on_host: dict[str, int] = {}
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

    def context_hashes(self, sequence: str) -> list[bytes]:
        return self.hashes[sequence]

    def loadable_tokens(self, sequence: str) -> int:
        return self.on_host.get(sequence, 0) * BLOCK

    def come(
        self,
        program: str,
        size: int,
        arrival: float,
        call: str = "",
        path_s: float = 0.0,
        tenant: str = "",
        head: tuple[str, int] = ("", 0),
        own: str = "",
        sequence: str = "",
    ) -> str:
        """A call arrives. head: the name and length of what its context begins with. own: the name
        of the rest, for each program another one. sequence: of the call, if it has several."""
        call = call or f"{program}/{next(self.numbers)}"
        name = sequence or call
        self.sizes[name] = size
        begun, length = head
        whose = [begun] * length + [f"{begun}{length}{own or program}"] * (size - length)
        self.hashes[name] = [
            sha256(f"{who}/{number}".encode()).digest() for number, who in enumerate(whose)
        ]
        context = CallContext(
            call,
            program,
            arrival_s=arrival,
            service_s=path_s,
            critical_path_s=path_s,
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
        self.residents.left(name, self.now)
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


def test_an_idle_engine_admits_a_call_that_does_not_fit_unless_a_resident_will_return():
    engine = Engine()
    first = engine.come("a", 70, 0.0)
    engine.admit()
    engine.come("b", 95, 1.0)
    engine.end(first)
    assert engine.admit() == []
    engine.residents.ended("a")
    assert engine.admit() == ["b/1"]


def test_a_context_that_can_never_stay_is_reported():
    engine = Engine()
    large = engine.come("a", 95, 0.0)
    assert engine.admit() == [large]
    (hint,) = engine.calls.of(large).hints
    assert hint.startswith("memory=never kept: its context has 1520 tokens, and at most 1440 stay")


def test_a_resident_s_next_call_comes_before_older_calls_of_other_programs():
    engine = Engine()
    first = engine.come("a", 70, 5.0)
    engine.admit()
    engine.come("b", 60, 9.0)
    engine.come("c", 60, 8.0)
    engine.end(first)
    engine.come("a", 72, 5.0)
    assert engine.admit()[0] == "a/3"


def test_a_call_is_deferred_for_twice_what_it_would_compute_and_evict():
    """60 blocks to compute, and 30 of others: 0.16 s each."""
    engine = Engine()
    engine.come("a", 70, 0.0)
    engine.admit()
    engine.come("b", 60, 1.0)
    assert engine.admit() == []
    assert engine.residents.due == pytest.approx(2 * 90 * 0.16)
    engine.now = 28.0
    engine.residents.freed()
    assert engine.admit() == []
    engine.now = 29.0
    assert engine.admit() == ["b/1"]


def test_turns_cost_a_sixteenth_of_the_time():
    engine = Engine()
    engine.come("a", 70, 0.0)
    engine.admit()
    for name in "bc":
        engine.come(name, 60, 1.0)
    engine.admit()
    engine.now = 29.0
    assert engine.admit() == ["b/1"]
    engine.end("b/1")
    admitted = []
    while not admitted:
        engine.now = engine.residents.due
        admitted = engine.admit()
    assert (admitted, engine.now) == (["c/2"], pytest.approx(29.0 + 16 * 90 * 0.16))


def test_a_sequence_whose_turn_it_is_precedes_the_calls_that_its_siblings_wait_behind():
    """A call of two prompts, and a longer one that came before and is deferred longer."""
    engine = Engine()
    engine.come("a", 70, 0.0)
    engine.admit()
    engine.come("long", 95, 1.0)
    for sequence, prompt in (("b", "first"), ("b2", "second")):
        engine.come("b", 60, 2.0, call="b", sequence=sequence, own=prompt)
    while not (admitted := engine.admit()):
        engine.now = engine.residents.due
    assert admitted == ["b"]


def test_a_resident_without_a_call_loses_its_place_after_the_limit():
    engine = Engine()
    first = engine.come("a", 70, 0.0)
    engine.admit()
    other = engine.come("b", 20, 1.0)
    engine.admit()
    engine.end(first)
    engine.come("c", 60, 2.0)
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


def test_a_prefix_that_programs_share_counts_once():
    engine = Engine()
    for number in range(10):
        engine.come(f"q{number}", 40, 100.0 + number, head=("system", 35))
    assert len(engine.admit()) == 10
    assert len(engine.resident) == 10
    assert engine.residents.kept_blocks == 35 + 10 * 5


def test_blocks_that_running_calls_use_do_not_count():
    engine = Engine()
    engine.come("a", 80, 0.0, head=("system", 75))
    engine.admit()
    engine.come("b", 95, 1.0, call="b", head=("system", 75))
    assert engine.admit() == ["b"]
    assert engine.resident == {"a"}


def test_children_are_admitted_as_far_as_what_they_add_fits():
    """A parent of 20 blocks makes calls of 35 that begin with its context. Another program keeps
    its place, and a third does not get one while children wait, although it would fit."""
    engine = Engine()
    engine.end(engine.admit_only(engine.come("p", 20, 0.0, head=("parent", 20))))
    other = engine.admit_only(engine.come("other", 30, 1.0))
    children = [
        engine.come("p", 35, 0.0, call=f"p/{number}", head=("parent", 20), own=f"child{number}")
        for number in range(4)
    ]
    assert engine.admit() == children[:3]
    engine.come("third", 10, 2.0)
    engine.end(other)
    assert engine.admit() == []
    assert engine.resident == {"p", "other"}
    engine.end(children[0])
    assert engine.admit() == [children[3], "third/2"]


def test_a_child_that_has_waited_long_enough_comes_first():
    """It would compute 15 blocks and evict 10."""
    engine = Engine()
    engine.end(engine.admit_only(engine.come("p", 20, 0.0, head=("parent", 20))))
    engine.end(engine.admit_only(engine.come("older", 30, -1.0)))
    for number in range(4):
        engine.come("p", 35, 0.0, call=f"p/{number}", head=("parent", 20), own=f"child{number}")
    assert engine.admit() == ["p/0", "p/1", "p/2"]
    assert engine.residents.due == pytest.approx(2 * 25 * 0.16)
    engine.now = 9.0
    engine.come("older", 31, -1.0)
    assert engine.admit() == ["p/3", "older/2"]


def test_short_programs_get_free_places_first_once_service_is_known_to_be_heavy_tailed():
    engine = Engine()
    first = engine.come("a", 80, 0.0)
    engine.admit()
    engine.come("long", 50, 1.0, path_s=100.0)
    engine.come("short", 50, 2.0)
    engine.end(first)
    engine.residents.ended("a")
    assert engine.admit()[0] == "short/2"


def test_a_short_single_call_never_waits_for_memory():
    engine = Engine()
    engine.come("a", 90, 0.0)
    engine.admit()
    assert engine.come("guest", 10, 1.0, call="guest") in engine.admit()
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
    engine.come("small", 1, 99.0, call="small", path_s=1.0)
    for _ in range(3):
        admitted = engine.admit()
        assert admitted or engine.residents.due <= engine.now + 1e-9
        engine.now = engine.residents.due
    assert admitted == ["small"]


def test_a_context_in_host_memory_waits_for_as_long_as_its_load_is_worth():
    waits = []
    for on_host in (0, 50):
        engine = Engine()
        engine.admit_only(engine.come("a", 60, 0.0))
        # Contexts are loaded in a hundredth of the time of computing them.
        engine.come("a", 60, 0.0, call="a/again")
        engine.residents.returned("a/again", computed=0, loaded=1000, load_s=0.1)
        engine.on_host["b/first"] = on_host
        engine.come("b", 50, 1.0, call="b/first")
        while "b/first" not in engine.admit():
            engine.now = engine.residents.due
        waits.append(engine.now)
    assert waits[1] < 0.1 * waits[0]


def test_first_calls_do_not_say_what_an_evicted_context_costs():
    engine = Engine()
    first = engine.admit_only(engine.come("a", 60, 0.0))
    engine.residents.returned(first, computed=0, loaded=1000, load_s=0.0)
    engine.come("b", 50, 1.0)
    assert engine.admit() == []
