"""The order `resident` on vLLM's real scheduler and cache."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
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
    """Calls of programs of two tenants and of none arrive and are aborted, programs end, caches are
    reset and orders switched."""
    e = engine(policy="resident", max_num_seqs=3, blocks=60)
    random, alive, wanted = Random(seed), [], {}
    for number in range(120):
        name, program = f"c{number}", random.randrange(9)
        e.add(
            name,
            program=f"p{program}" if program else "",
            arrival=float(program),
            tenant="ab"[program % 2],
            prompt=text(program, random.randint(1, 500)),
            tokens=(wanted.setdefault(name, random.randint(1, 30))),
        )
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
            policy = random.choice(["warm_plas", "fcfs", "resident", "resident"])
            e.scheduler.obey(Command(policy=policy))
        assert e.scheduler.violations() == []
    e.run()
    assert {name: len(e.tokens[name]) for name in wanted} == wanted
    assert e.scheduler.state()["held_back"] == 0
    e.scheduler.obey(Command(policy="fcfs"))
    e.scheduler.obey(Command(policy="resident"))
    e.add("last", program="p1", prompt=text(1, 20))
    e.run()
    assert e.scheduler.violations() == []
