"""Which programs are residents, in blocks and seconds."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.context_tree import KEPT
from weft_engine.working_sets import Thread, WorkingSets


class Sets(WorkingSets):
    """Programs whose calls are one thread each."""

    def __init__(self, blocks):
        super().__init__(blocks)
        self.threads = {}

    def arrive(self, program, *args, **options):
        self.threads[program] = super().arrive(program, *args, **options)

    def leave(self, program, *args):
        super().leave(self.threads[program], *args)


def sets(blocks: int, *programs: tuple[str, int]) -> Sets:
    """Programs with one call each that has ended, in order of arrival."""
    found = Sets(blocks)
    for number, (name, size) in enumerate(programs):
        found.arrive(name, size, 0.0, float(number))
        found.leave(name, size, 0.0)
    found.choose()
    return found


def test_the_oldest_programs_that_fit_together_are_residents():
    found = sets(100, ("a", 60), ("b", 50), ("c", 30))
    assert found.residents == {"a", "c"}
    assert found.left == 10


def test_the_choice_reports_what_has_changed():
    found = sets(100, ("a", 60), ("b", 50))
    assert found.choose() == (set(), set())
    found.end("a")
    assert found.choose() == ({"b"}, {"a"})
    assert found.left == 50


def test_growth_is_learned_from_programs_that_ended():
    found = sets(100, ("a", 20))
    found.arrive("a", 50, 1.0, 0.0)
    found.leave("a", 60, 2.0)
    found.end("a")
    found.arrive("b", 20, 3.0, 3.0)
    found.arrive("c", 20, 3.0, 4.0)
    found.choose()
    assert found.residents == {"b", "c"}
    # Half of the growth of 40 is reserved.
    assert found.left == 20


def test_a_program_that_grows_beyond_its_prediction_takes_the_place_of_a_younger_one():
    found = sets(100, ("a", 50), ("b", 50))
    found.arrive("a", 51, 1.0, 0.0)
    assert found.choose() == (set(), {"b"})


def test_tenants_take_turns_by_their_weights():
    found = Sets(80)
    for number in range(8):
        found.arrive(f"many-{number}", 10, 0.0, float(number), "many")
        found.arrive(f"few-{number}", 10, 0.0, 100.0 + number, "few", 3.0)
    found.choose()
    assert len([name for name in found.residents if name.startswith("few")]) == 6
    assert {"many-0", "many-1"} <= found.residents


def test_a_program_without_calls_loses_its_place_and_returns_with_its_age():
    found = sets(50, ("a", 40))
    found.arrive("b", 40, 1.0, 1.0)
    found.choose()
    assert found.residents == {"a"}
    assert found.next_idle() == 0.0
    found.expire(5.0)
    assert found.choose() == ({"b"}, {"a"})
    found.arrive("c", 40, 20.0, 20.0)
    found.arrive("a", 45, 30.0, 0.0)
    # It takes no other's place, and the next free one.
    assert found.choose() == (set(), set())
    found.end("b")
    assert found.choose() == ({"a"}, {"b"})
    assert found.next_idle() is None


def test_programs_with_calls_do_not_lose_their_place():
    found = Sets(50)
    found.arrive("a", 10, 0.0, 0.0)
    found.choose()
    found.expire(1e9)
    found.choose()
    assert found.residents == {"a"}


def test_programs_of_one_call_keep_no_place_once_it_is_known_that_few_return():
    found = Sets(50)
    for number in range(8):
        found.arrive(f"once-{number}", 5, 0.0, float(number))
        found.leave(f"once-{number}", 5, 0.0)
    found.choose()
    assert len(found.residents) == 8
    found.expire(1.0)
    found.arrive("next", 5, 2.0, 9.0)
    found.choose()
    assert found.residents == {"next"}
    found.leave("next", 5, 3.0)
    found.choose()
    assert found.residents == set()
    # Its second call shows that it is a program of several calls.
    found.arrive("next", 5, 4.0, 9.0)
    found.leave("next", 5, 5.0)
    found.choose()
    assert found.residents == {"next"}


def test_the_usual_gap_covers_nine_of_ten():
    found = Sets(50)
    now = 0.0
    for number in range(20):
        assert (found.usual_gap_s() is None) == (number <= 8)
        found.arrive("a", 1, now, 0.0)
        found.leave("a", 1, now)
        now += 90.0 if number % 10 == 9 else 2.0
    assert found.usual_gap_s() == 2.0


def test_the_record_is_bounded():
    found = Sets(10)
    for number in range(5000):
        found.arrive(f"p{number}", 1, float(number), float(number))
        found.leave(f"p{number}", 1, float(number))
    found.choose()
    assert len(found._sets) <= 4096
    # The programs that were idle longest are forgotten.
    assert min(int(name[1:]) for name in found._sets) > 800


def test_a_program_that_comes_or_goes_changes_the_choice_at_once():
    found = sets(100, ("a", 30), ("b", 30))
    found.arrive("c", 30, 1.0, 2.0)
    assert found.residents == {"a", "b", "c"}
    assert found.choose() == ({"c"}, set())
    found.end("b")
    assert (found.residents, found.left) == ({"a", "c"}, 40)
    assert found.choose() == (set(), {"b"})
    found.arrive("d", 50, 2.0, 3.0)
    found.arrive("first", 50, 2.0, -1.0)
    assert found.choose() == (set(), set())
    found.end("a")
    assert found.choose() == ({"first"}, {"a"})


def test_programs_of_another_tenant_get_their_share_of_the_places():
    found = Sets(40)
    for number in range(4):
        found.arrive(f"many-{number}", 10, 0.0, float(number), "many")
    found.choose()
    for number in range(4):
        found.arrive(f"few-{number}", 10, 1.0, 10.0 + number, "few")
    assert found.choose() == ({"few-0", "few-1"}, {"many-2", "many-3"})


def learned_that_most_are_short(blocks: int) -> Sets:
    found = Sets(blocks)
    found.forecast.serve(0.0, 1000.0)
    for _ in range(8):
        found.forecast.end(3.0)
    return found


def test_free_places_go_to_the_lowest_level_and_the_oldest_of_it():
    found = learned_that_most_are_short(50)
    found.arrive("a", 40, 0.0, 0.0)
    found.arrive("long", 40, 1.0, 1.0, service_s=100.0)
    found.arrive("short", 40, 2.0, 2.0)
    found.arrive("younger", 40, 3.0, 3.0)
    found.end("a")
    assert found.choose() == ({"short"}, set())


def test_a_context_to_compute_again_raises_the_level():
    found = learned_that_most_are_short(50)
    found.arrive("in", 40, 0.0, 0.0, service_s=2.0)
    found.arrive("out", 40, 1.0, 1.0, service_s=2.0)
    found.block_s = 0.5
    assert found.residents == {"in"}
    assert found.level("in") < found.level("out")
    found.leave("in", 40, 2.0, 60.0)
    assert found.level("in") > found.level("out")


EVENTS = st.lists(
    st.tuples(st.sampled_from("aalex"), st.integers(0, 6), st.integers(1, 60)), max_size=80
)


@given(EVENTS)
def test_residents_are_known_candidates_that_fit_whatever_happens(events):
    """Each program's largest context counts, so residents never fill more than their memory."""
    found, sizes, calls, now = Sets(100), {}, {}, 0.0
    for kind, number, size in events:
        now += 1.0
        name = f"p{number}"
        if kind == "a":
            if name in found._sets and not found._sets[name].threads:
                # It was away, and its former context does not count any more.
                del sizes[name]
            found.arrive(name, size, now, float(number), f"t{number % 2}")
            calls[name] = calls.get(name, 0) + 1
            sizes[name] = max(size, sizes.get(name, 0))
        elif kind == "l" and calls.get(name):
            found.leave(name, size, now)
            calls[name] -= 1
            sizes[name] = max(size, sizes[name])
        elif kind == "e":
            found.end(name)
            calls.pop(name, None)
            sizes.pop(name, None)
        elif kind == "x":
            found.expire(now - size)
        before = found.residents
        came, gone = found.choose()
        assert found.residents == (before - gone) | came
        assert found.residents <= sizes.keys()
        assert sum(sizes[name] for name in found.residents) <= min(100, 100 - found.left)
        assert found.violations() == []


def test_a_program_of_any_tenant_takes_a_free_place_if_all_fit():
    found = Sets(100)
    for number, tenant in enumerate(("one", "two", "three")):
        found.arrive(f"p{number}", 30, 0.0, 9.0 - number, tenant)
        assert not found._changed
    assert found.choose() == ({"p0", "p1", "p2"}, set())
    # Now the tenants take turns.
    found.arrive("p3", 30, 0.0, 1.0, "two")
    found.choose()
    assert len(found.residents) == 3


def test_programs_beyond_the_limit_are_forgotten_except_those_with_calls():
    found = Sets(10**9)
    for number in range(4200):
        found.arrive(f"p{number}", 10, float(number), float(number))
        if number % 2:
            found.leave(f"p{number}", 10, float(number))
    for number in range(0, 4200, 2):
        found.leave(f"p{number}", 10, 5000.0 + number)
    assert found.violations() == []
    assert 3500 < len(found._sets) <= 4096
    assert found._sets.keys() >= {f"p{number}" for number in range(0, 4200, 2)}
    assert "p1" not in found._sets


def chain(*parts: tuple[str, int]) -> list[bytes]:
    """The hashes of the blocks of these parts: names and numbers of blocks."""
    found = [b""]
    for name, length in parts:
        for number in range(length):
            found.append(sha256(found[-1] + f"{name}/{number}".encode()).digest())
    return found[1:]


def call(found: WorkingSets, program: str, *parts: tuple[str, int], now: float = 0.0) -> Thread:
    hashes = chain(*parts)
    return found.arrive(program, len(hashes), now, 0.0, chain=hashes)


def test_a_set_shrinks_when_its_context_is_edited():
    found = WorkingSets(100)
    thread = call(found, "a", ("system", 10), ("history", 50))
    found.leave(thread, 60, 1.0, chain=chain(("system", 10), ("history", 50)))
    assert found.left == 40
    call(found, "a", ("system", 10), ("history", 25), ("new", 5))
    # What its context had grown to is expected again, and half of it is reserved.
    assert found.tree.used[KEPT] == 40
    assert found.reserved == 10
    assert found.violations() == []


def test_further_threads_are_in_no_set_until_they_are_known_to_return():
    found = WorkingSets(1000)
    for number in range(10):
        program = f"p{number}"
        parent = call(found, program, (program, 20))
        found.leave(parent, 20, 0.0, chain=chain((program, 20)))
        threads = [call(found, program, (program, 20), (str(n), 10)) for n in range(2)]
        assert found.tree.used[KEPT] == 20
        for n, thread in enumerate(threads):
            found.leave(thread, 30, 1.0, chain=chain((program, 20), (str(n), 10)))
        # Of two further threads of each program, both call again.
        assert found.tree.used[KEPT] == (20 if number < 4 else 40)
        for n, thread in enumerate(threads):
            assert call(found, program, (program, 20), (str(n), 12)) is thread
        assert found.tree.used[KEPT] == 44
        assert found.violations() == []
        found.end(program)
        assert found.tree.used[KEPT] == 0


def test_a_place_is_taken_from_the_youngest_of_the_highest_level():
    found = sets(100, ("a", 40), ("b", 40), ("c", 30))
    assert found.residents == {"a", "b"}
    assert found.take_place("c")
    assert found.choose() == ({"c"}, {"b"})
    assert not sets(100, ("a", 40), ("b", 101)).take_place("b")


def test_a_program_whose_contexts_are_gone_takes_no_place():
    found = sets(100, ("a", 40))
    found.expire(1.0)
    assert not found.take_place("a")
    assert found.violations() == []
