"""`warm_plas` on vLLM's real scheduler and cache: cached calls first, and reservations."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 1000.0, "beta": 5.0}


def text(who: int, length: int) -> list[int]:
    """A program's own tokens."""
    return [who * 600 + n for n in range(length)]


def turns(e: Any, programs: int, rounds: int, growth: int = 64) -> float:
    """Programs that all call again at once, each with a longer prompt. The hit rate of the calls
    after the first ones."""
    asked = [0] * programs
    for number in range(programs):
        e.add(
            f"{number}/0", program=f"p{number}", arrival=float(number), prompt=text(number, growth)
        )
    seen = 0
    while e.busy:
        e.step() if e.scheduler.has_unfinished_requests() else e.land_all()
        for report in e.reports[seen:]:
            number = int(report.call.partition("/")[0])
            asked[number] += 1
            if asked[number] < rounds:
                e.add(
                    f"{number}/{asked[number]}",
                    program=f"p{number}",
                    arrival=float(number),
                    prompt=text(number, growth * (asked[number] + 1)),
                )
        seen = len(e.reports)
        assert e.scheduler.violations() == []
    e.check_idle()
    later = [r for r in e.reports if not r.call.endswith("/0")]
    assert len(e.reports) == programs * rounds
    return sum(r.cached_tokens for r in later) / sum(r.prompt_tokens for r in later)


def test_programs_that_take_turns_find_their_context_in_a_cache_for_few_of_them(engine):
    """Six programs of up to 20 blocks, 48 blocks, one slot: turns by order of arrival leave nothing
    to find, and what is warm goes on where it can."""
    found = {
        policy: turns(engine(policy=policy, options=OPTIONS, max_num_seqs=1, blocks=48), 6, 5)
        for policy in ("plas", "warm_plas")
    }
    assert found["plas"] < 0.2
    assert found["warm_plas"] > 0.6


def test_blocks_are_reserved_for_a_program_between_two_calls(engine):
    e = engine(policy="warm_plas", options={**OPTIONS, "reserve_factor": 20.0}, blocks=64)
    e.add("busy", program="busy", prompt=text(9, 16), tokens=60)
    e.add("a/0", program="a", prompt=text(1, 640))
    while len(e.reports) < 1:
        e.step()
    assert e.reports[0].call == "a/0"
    # 40 of 63 blocks are kept, and this one wants 30.
    e.add("cold", program="cold", prompt=text(2, 480))
    e.step()
    e.step()
    state = e.scheduler.state()
    assert state["held_back"] == 1
    assert 38 <= state["kept_blocks"] <= 40
    e.add("a/1", program="a", prompt=text(1, 660))
    e.run()
    order = [r.call for r in e.reports]
    assert order.index("a/1") < order.index("cold")
    again = next(r for r in e.reports if r.call == "a/1")
    assert again.cached_tokens == 640


def test_threads_of_a_program_have_separate_reservations(engine):
    """Two threads leave 20 blocks each of 63; one goes on, and the other one's is still kept."""
    e = engine(policy="warm_plas", options={**OPTIONS, "reserve_factor": 20.0}, blocks=64)
    e.add("busy", program="busy", prompt=text(9, 16), tokens=80)
    # That its threads go on with what they left is learned.
    for number in range(2):
        e.add(f"first/{number}", program="p", prompt=text(4, 330))
        while len(e.reports) < number + 1:
            e.step()
    e.add("a/0", program="p", prompt=text(1, 330))
    e.add("b/0", program="p", prompt=text(2, 330))
    while len(e.reports) < 4:
        e.step()
    assert 40 <= e.scheduler.state()["kept_blocks"] <= 42
    e.add("a/1", program="p", prompt=text(1, 340))
    while len(e.reports) < 5:
        e.step()
    assert e.reports[-1].cached_tokens == 320
    e.add("cold", program="cold", prompt=text(3, 480))
    e.step()
    e.step()
    assert e.scheduler.state()["held_back"] == 1
    e.add("b/1", program="p", prompt=text(2, 340))
    e.run()
    order = [r.call for r in e.reports]
    assert order.index("b/1") < order.index("cold")
    assert next(r for r in e.reports if r.call == "b/1").cached_tokens == 320


def test_a_deferred_call_is_admitted_after_its_hold_or_the_reservation(engine):
    e = engine(policy="warm_plas", options={**OPTIONS, "reserve_factor": 20.0}, blocks=64)
    e.add("busy", program="busy", prompt=text(9, 16), tokens=200)
    e.add("a/0", program="a", prompt=text(1, 640))
    while len(e.reports) < 1:
        e.step()
    e.add("cold", program="cold", prompt=text(2, 480), tokens=2)
    e.run()
    assert [r.call for r in e.reports] == ["a/0", "cold", "busy"]
    cold = next(r for r in e.reports if r.call == "cold")
    assert 10 < cold.waiting_s < 60
    assert 0 < cold.memory_wait_s <= cold.waiting_s
    assert (cold.memory_tokens, cold.programs_ahead) == (480, 1)
    assert {r.memory_wait_s for r in e.reports if r.call != "cold"} == {0.0}


@pytest.mark.parametrize(
    ("blocks", "small", "length"), [(230, 60, 2), (270, 6, 272)], ids=["short", "cold"]
)
def test_small_calls_are_admitted_past_one_that_is_held_back(engine, blocks, small, length):
    """Short calls rank first. Cold calls of 17 blocks arrive behind the one that is held back."""
    e = engine(
        policy="warm_plas",
        options={**OPTIONS, "reserve_factor": 20.0},
        blocks=blocks,
        max_num_seqs=200,
    )
    e.add("busy", program="busy", prompt=text(9, 16), tokens=200)
    e.add("a/0", program="a", prompt=text(1, 640))
    while len(e.reports) < 1:
        e.step()
    # Two blocks are in use and 40 of the others kept: the second one of 119 blocks has to wait.
    e.add("cold", program="cold", prompt=text(2, 1900), tokens=100)
    e.add("colder", program="colder", prompt=text(3, 1900), tokens=2)
    for number in range(small):
        e.add(f"small{number}", prompt=text(5 + number, length), tokens=14)
    # No call ends meanwhile, so only the admissions themselves cause a new decision.
    for _ in range(12):
        e.step()
    started = frozenset().union(*e.batches)
    assert sum(name.startswith("small") for name in started) == small
    assert "colder" not in started
    e.run()


def test_a_held_call_stays_held_behind_many_others(engine):
    """A free slot lets the cache be looked at again. The held call is the last of the queue then,
    behind more calls than one look covers."""
    options = {**OPTIONS, "reserve_factor": 20.0}
    e = engine(policy="warm_plas", options=options, blocks=270, max_num_seqs=3)
    e.add("busy", program="busy", prompt=text(9, 16), tokens=200)
    e.add("a/0", program="a", prompt=text(1, 640))
    while len(e.reports) < 1:
        e.step()
    e.add("cold", program="cold", prompt=text(2, 1900), tokens=100)
    e.add("held", program="held", prompt=text(3, 1900), tokens=2)
    for number in range(20):
        e.add(f"small{number}", prompt=text(5 + number, 272), tokens=3)
    for _ in range(30):
        e.step()
    ended = [report.call for report in e.reports]
    assert sum(name.startswith("small") for name in ended) >= 5
    assert "held" not in frozenset().union(*e.batches)
    e.run()


def test_an_ended_program_defers_no_call(engine):
    e = engine(policy="warm_plas", options={**OPTIONS, "reserve_factor": 20.0}, blocks=64)
    e.add("busy", program="busy", prompt=text(9, 16), tokens=60)
    e.add("a/0", program="a", prompt=text(1, 640))
    while len(e.reports) < 1:
        e.step()
    e.scheduler.obey(Command(kv=KvCommand("forget", "a")))
    e.add("cold", program="cold", prompt=text(2, 480))
    e.run()
    assert next(r for r in e.reports if r.call == "cold").waiting_s <= 1.0


def test_a_running_call_is_not_put_out_for_its_blocks(engine):
    e = engine(policy="warm_plas", options={"first_quantum_s": 2.0}, max_num_seqs=8, blocks=13)
    e.add("heavy", service=1e6, prompt=text(1, 160), tokens=12)
    e.step()
    e.add("light", prompt=text(2, 100), tokens=3)
    e.run()
    assert [r.call for r in e.reports] == ["heavy", "light"]
    assert e.scheduler.state()["displacements"] == 0


def test_a_slot_is_given_to_a_new_program(engine):
    e = engine(policy="warm_plas", options={"first_quantum_s": 2.0}, max_num_seqs=1)
    e.add("heavy", service=1e6, tokens=30)
    e.step()
    e.add("light", tokens=1)
    e.run()
    assert [r.call for r in e.reports] == ["light", "heavy"]


def test_without_a_prefix_cache_it_is_plas_by_programs(engine, monkeypatch):
    from weft_engine.scheduler import WeftScheduler

    monkeypatch.setattr(WeftScheduler, "prefix_cached", lambda self: False)
    e = engine(policy="warm_plas", options=OPTIONS, max_num_seqs=1)
    e.add("young", arrival=200.0)
    e.add("old", arrival=100.0)
    e.run()
    assert [r.call for r in e.reports] == ["old", "young"]


@pytest.mark.parametrize("reserve_factor", [0.0, 0.25, 50.0])
def test_a_storm_ends_with_every_token_whatever_is_kept(engine, reserve_factor):
    options = {"first_quantum_s": 2.0, "beta": 5.0, "reserve_factor": reserve_factor}
    e = engine(policy="warm_plas", options=options, max_num_seqs=3, blocks=60, step_tokens=320)
    random = Random(reserve_factor)
    wanted: dict[str, int] = {}
    lengths = [40] * 9
    alive: list[str] = []
    for number in range(300):
        name, who = f"c{number}", random.randrange(9)
        lengths[who] = min(560, lengths[who] + random.randint(0, 60))
        wanted[name] = random.randint(1, 12)
        e.add(
            name, program=f"p{who}", service=random.choice([0.0, 3.0, 50.0]),
            waiting=random.choice([0.0, 40.0]), arrival=float(who),
            prompt=text(who, lengths[who]), tokens=wanted[name],
        )  # fmt: skip
        alive.append(name)
        for _ in range(random.randrange(6)):
            e.step()
        if random.random() < 0.1:
            wanted.pop(gone := alive.pop(random.randrange(len(alive))))
            e.abort(gone)
        if random.random() < 0.02:
            e.scheduler.obey(Command(policy=random.choice(["fcfs", "plas", "warm_plas"])))
        if random.random() < 0.02:
            e.scheduler.obey(Command(reset_cache=True))
        assert e.scheduler.violations() == []
    e.scheduler.obey(Command(policy="warm_plas"))
    e.run(20_000)
    assert {name: len(e.tokens[name]) for name in wanted} == wanted


@pytest.mark.parametrize("service", [0.0, 5.0], ids=["new", "served"])
def test_a_stream_of_warm_calls_does_not_starve_a_cold_one(engine, service):
    """One slot, a cold call, and short new programs, as good as warm, that come as fast as they are
    served. It waits for beta times what it was served, or what leads to the third queue, 12 s."""
    options = {"first_quantum_s": 4.0, "beta": 2.0}
    e = engine(policy="warm_plas", options=options, max_num_seqs=1)
    e.add("first", tokens=4)
    e.step()
    e.add("cold", program="old", service=service, prompt=text(1, 600), tokens=2)
    for number in range(60):
        e.add(f"short{number}", prompt=text(2 + number, 20), tokens=1)
        e.step()
    e.run()
    report = next(r for r in e.reports if r.call == "cold")
    limit = 2.0 * (service or 12.0)
    assert report.queue_path[-1] == 0
    assert limit <= report.waiting_s <= limit + 4.0
    e.check_idle()


def test_no_room_is_kept_for_calls_that_belong_to_no_program(engine):
    for program, kept in (("", False), ("p", True)):
        e = engine(policy="warm_plas", options={**OPTIONS, "reserve_factor": 20.0}, blocks=64)
        e.add("busy", tokens=60)
        e.add("call", program=program, prompt=text(1, 640))
        while not e.reports:
            e.step()
        e.step()
        assert (e.scheduler.state()["kept_blocks"] > 0) is kept
        e.run()


def test_queues_are_sorted_with_siblings_that_run_and_wait_beside_each_other(engine, monkeypatch):
    """Calls of up to four sequences: what is put in order event by event is what sorting all would
    give, before every step."""
    options = {"first_quantum_s": 2.0, "beta": 5.0}
    e = engine(policy="warm_plas", options=options, max_num_seqs=4, blocks=200, step_tokens=640)
    scheduler, sort = e.scheduler, e.scheduler._sort

    def sorting() -> None:
        sort()
        for queue in (scheduler.waiting, scheduler.running):
            ranks = [scheduler.calls.rank(request.request_id) for request in queue]
            assert ranks == sorted(ranks)

    monkeypatch.setattr(scheduler, "_sort", sorting)
    random = Random(3)
    for number in range(120):
        for sibling in range(random.choice([1, 1, 2, 4])):
            e.add(
                f"c{number}-{sibling}", call=f"c{number}", program=f"p{number % 7}",
                service=random.choice([0.0, 3.0, 50.0]), arrival=float(number % 7),
                prompt=text(number % 7, 40 + 16 * random.randrange(30)),
                tokens=random.randint(1, 8),
            )  # fmt: skip
        for _ in range(random.randrange(6)):
            e.step()
    e.run(20_000)
