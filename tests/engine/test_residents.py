"""The order `resident` on vLLM's real scheduler and cache."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.interface import PauseState
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand

pytestmark = pytest.mark.engine

# A step takes a second, so a prefill of the whole cache takes about as long as a gap.
PATIENT = {"resident_factor": 20.0}


def text(who: int, length: int) -> list[int]:
    """A program's own tokens."""
    return [who * 600 + n for n in range(length)]


def played(e: Any, programs: int, calls: int, gap: int) -> float:
    """Programs that grow by 48 tokens per call and call again `gap` steps after an answer. Returns
    the hit rate of all calls but the first ones."""
    e.token_s = 0.05
    asked, due, seen = [0] * programs, dict.fromkeys(range(programs), 0), 0
    step = 0
    while due or e.busy:
        for number in [n for n, at in due.items() if at <= step]:
            del due[number]
            asked[number] += 1
            e.add(
                f"{number}/{asked[number]}",
                program=f"p{number}",
                arrival=float(number),
                prompt=text(number, 128 + 48 * asked[number]),
                tokens=4,
            )
        e.step() if e.scheduler.has_unfinished_requests() else e.land_all()
        step += 1
        for report in e.reports[seen:]:
            number = int(report.call.partition("/")[0])
            if asked[number] < calls:
                due[number] = step + gap
            else:
                e.scheduler.obey(Command(kv=KvCommand(action="forget", program=f"p{number}")))
        seen = len(e.reports)
        assert e.scheduler.violations() == []
    e.check_idle()
    assert len(e.reports) == programs * calls
    later = [r for r in e.reports if not r.call.endswith("/1")]
    return sum(r.cached_tokens for r in later) / sum(r.prompt_tokens for r in later)


def test_programs_find_their_contexts_after_gaps_although_all_do_not_fit(engine):
    """Ten programs of up to 25 blocks and 80 blocks: three fit. Gaps are longer than a call."""
    found = {
        policy: played(
            engine(policy=policy, options=PATIENT, max_num_seqs=4, blocks=80), 10, 6, gap=6
        )
        for policy in ("program_fifo", "resident")
    }
    assert found["resident"] > 0.5
    assert found["program_fifo"] < found["resident"] - 0.3


def test_contexts_of_residents_outlive_other_calls(engine):
    e = engine(policy="resident", options=PATIENT, max_num_seqs=4, blocks=64)
    e.add("a/0", program="a", prompt=text(1, 480))
    e.run()
    for number in range(8):
        e.add(f"one-{number}", prompt=text(2 + number, 200), call=f"one-{number}")
        e.run()
    e.add("a/1", program="a", prompt=text(1, 490))
    e.run()
    assert e.reports[-1].cached_tokens == 480
    assert e.scheduler.state()["kept_blocks"] == 31


@pytest.mark.parametrize("seed", range(6))
def test_any_course_of_events_ends_with_all_calls_and_nothing_held(engine, seed):
    """Calls of programs of two tenants and of none arrive, with up to four sequences, branches and
    adapters, and are aborted; programs end, the engine pauses, caches are reset and orders
    switched. In the end, the programs that never returned are told to have ended."""
    e = engine(policy="resident", max_num_seqs=3 + seed % 3, blocks=60)
    e.token_s = 0.01 * (seed % 2)
    e.scheduler.lora_config = SimpleNamespace(max_loras=1)
    random, alive, wanted = Random(seed), [], {}
    for number in range(120):
        program, shared = random.randrange(9), random.randint(1, 400)
        for sibling in range(random.choice([1, 1, 2, 4])):
            name = f"c{number}-{sibling}"
            e.add(
                name,
                call=f"c{number}",
                program=f"p{program}" if program else "",
                arrival=float(program),
                tenant="ab"[program % 2],
                prompt=text(program, shared) + text(9 + number % 40, random.randrange(100)),
                tokens=wanted.setdefault(name, random.randint(1, 30)),
                salt=random.choice([None, "salt"]),
            )
            if random.random() < 0.3:
                lora = LoRARequest("adapter", random.randint(1, 3), "/adapter")
                e.scheduler.requests[name].lora_request = lora
            alive.append(name)
        for _ in range(random.randrange(5)):
            e.step()
        chance = random.random()
        if chance < 0.1:
            gone = alive.pop(random.randrange(len(alive)))
            wanted.pop(gone, None)
            e.abort(gone)
        elif chance < 0.2:
            e.scheduler.obey(
                Command(kv=KvCommand(action="forget", program=f"p{random.randrange(9)}"))
            )
        elif chance < 0.25:
            e.scheduler.obey(Command(reset_cache=True))
        elif chance < 0.3:
            policy = random.choice(["plas", "fcfs", "resident", "resident"])
            e.scheduler.obey(Command(policy=policy))
        elif chance < 0.35:
            e.scheduler.reset_prefix_cache()
        elif chance < 0.4:
            e.scheduler.set_pause_state(random.choice(list(PauseState)))
            e.step()
            e.scheduler.set_pause_state(PauseState.UNPAUSED)
        assert e.scheduler.violations() == []
    e.run(20_000)
    assert {name: len(e.tokens[name]) for name in wanted} == wanted
    assert e.scheduler.state()["held_back"] == 0
    e.scheduler.obey(Command(policy="resident"))
    # Without a program, each sequence is one of its own.
    alone = [f"c{number}-{sibling}" for number in range(120) for sibling in range(4)]
    for program in [*(f"p{number}" for number in range(9)), *alone]:
        e.scheduler.obey(Command(kv=KvCommand(action="forget", program=program)))
    assert e.scheduler.state()["kept_blocks"] == 0
    e.scheduler.obey(Command(policy="fcfs"))
    e.scheduler.obey(Command(policy="resident"))
    e.add("last", program="p1", prompt=text(1, 20))
    e.run()
    assert e.scheduler.violations() == []


def busy_with_a_resident(engine: Any, **shape: Any) -> Any:
    """An engine on which a call of two blocks runs, and a program of 40 blocks is between calls. A
    context of 30 blocks takes 24 s."""
    e = engine(policy="resident", options=PATIENT, **shape)
    e.token_s = 0.05
    e.add("busy", program="busy", prompt=text(9, 16), tokens=200)
    e.add("a/0", program="a", prompt=text(1, 640))
    while len(e.reports) < 1:
        e.step()
    return e


def test_a_deferred_call_waits_for_its_hold_or_the_end_of_the_program(engine):
    waited = {}
    for ends in (False, True):
        e = busy_with_a_resident(engine, blocks=64)
        if ends:
            e.scheduler.obey(Command(kv=KvCommand("forget", "a")))
        e.add("cold", prompt=text(2, 480), tokens=2)
        e.step()
        assert e.scheduler.state()["held_back"] == (0 if ends else 1)
        e.run()
        waited[ends] = next(r for r in e.reports if r.call == "cold")
    assert waited[True].waiting_s <= 1.0
    assert waited[False].waiting_s > 10
    assert 0 < waited[False].memory_wait_s <= waited[False].waiting_s
    assert waited[False].memory_tokens == 480


def test_an_idle_engine_lets_no_call_wait_for_a_turn(engine):
    """The turn of the second program took 24 s, and the next one would be due after 16 times as
    long."""
    e = engine(policy="resident", options=PATIENT, blocks=64)
    e.token_s = 0.05
    for number, length in enumerate((640, 480, 640)):
        e.add(f"{number}/0", program=f"{number}", prompt=text(number, length))
        e.run()
    waited = [report.waiting_s for report in e.reports]
    assert waited[0] == 0
    assert 30 < waited[1] < 100
    assert 30 < waited[2] < 100


def test_small_calls_are_admitted_past_many_that_are_deferred(engine):
    """More calls are deferred than one refresh considers, and small ones arrive behind them. No
    call ends meanwhile, so only refreshes themselves cause a new decision."""
    e = busy_with_a_resident(engine, blocks=64, max_num_seqs=200)
    for number in range(80):
        e.add(f"cold{number}", prompt=text(2 + number, 480), tokens=2)
    for number in range(6):
        e.add(f"small{number}", prompt=text(90 + number, 2), tokens=14)
    for _ in range(12):
        e.step()
    started = frozenset().union(*e.batches)
    assert sum(name.startswith("small") for name in started) == 6
    assert not any(name.startswith("cold") for name in started)
    e.run()


def test_a_deferred_call_stays_deferred_behind_many_others(engine):
    """A free slot starts a refresh. The deferred call is the last of the queue then, behind more
    calls than one refresh considers."""
    e = busy_with_a_resident(engine, blocks=64, max_num_seqs=3)
    e.add("held", prompt=text(2, 480), tokens=2)
    for number in range(20):
        e.add(f"small{number}", prompt=text(5 + number, 12), tokens=3)
    for _ in range(30):
        e.step()
    ended = [report.call for report in e.reports]
    assert sum(name.startswith("small") for name in ended) >= 5
    assert "held" not in frozenset().union(*e.batches)
    e.run()


def test_no_memory_is_kept_for_calls_that_belong_to_no_program(engine):
    for program, kept in (("", False), ("p", True)):
        e = engine(policy="resident", options=PATIENT, blocks=64)
        e.add("busy", tokens=60)
        e.add("call", program=program, prompt=text(1, 640))
        while not e.reports:
            e.step()
        e.step()
        assert (e.scheduler.state()["kept_blocks"] > 0) is kept
        e.run()


def test_without_a_prefix_cache_it_is_program_fifo(engine, monkeypatch):
    from weft_engine.scheduler import WeftScheduler

    monkeypatch.setattr(WeftScheduler, "prefix_cached", lambda self: False)
    e = engine(policy="resident", max_num_seqs=1)
    e.add("young", program="y", arrival=200.0)
    e.add("old", program="o", arrival=100.0)
    e.run()
    assert [r.call for r in e.reports] == ["old", "young"]


@pytest.mark.parametrize("policy", ["plas", "resident", "slack"])
def test_queues_are_sorted_with_siblings_that_run_and_wait_beside_each_other(
    engine, monkeypatch, policy
):
    """Calls of up to four sequences: before every step, the incremental order equals a full
    sort."""
    options = {"first_quantum_s": 2.0, "beta": 5.0}
    e = engine(policy=policy, options=options, max_num_seqs=4, blocks=200, step_tokens=640)
    scheduler, decisions, sort = e.scheduler, e.scheduler._decisions, e.scheduler._decisions.sort

    def sorting() -> None:
        sort()
        for queue in (scheduler.waiting, scheduler.running):
            ranks = [scheduler.calls.rank(request.request_id) for request in queue]
            assert ranks == sorted(ranks)

    monkeypatch.setattr(decisions, "sort", sorting)
    random = Random(3)
    for number in range(120):
        for sibling in range(random.choice([1, 1, 2, 4])):
            e.add(
                f"c{number}-{sibling}", call=f"c{number}", program=f"p{number % 7}",
                service=random.choice([0.0, 3.0, 50.0]), arrival=float(number % 7),
                prompt=text(number % 7, 40 + 16 * random.randrange(30)),
                tokens=random.randint(1, 8),
                extra={"weft_budget": 3.0 * (number % 9), "weft_left": 5.0 * (number % 11),
                       "weft_deadline": 4.0 ** (number % 4), "weft_cost": 4.0},
            )  # fmt: skip
        for _ in range(random.randrange(6)):
            e.step()
    e.run(20_000)
