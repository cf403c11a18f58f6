"""Contexts in host memory: vLLM's OffloadingConnector with the plugin, on vLLM's real scheduler.

Every KV position that a step reads has the right content, so greedy outputs are those without it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand
from weft_engine.tags import Tag

pytestmark = pytest.mark.engine


def text(who: int, length: int) -> list[int]:
    """A program's own tokens."""
    return [who * 600 + n for n in range(length)]


def with_host(make: Any, host: int, swap_slots: int = 0, **options: Any) -> tuple[Any, Any]:
    """An engine with host memory for `host` blocks, and the content of both memories."""
    from harness import swap_transfer
    from host_memory import HostMemory, offloading, offloading_beside
    from vllm.config import KVTransferConfig

    if swap_slots:
        transfer = offloading_beside(swap_transfer(swap_slots), host)
    else:
        transfer = KVTransferConfig(**offloading(host))
    e = make(transfer=transfer, **options)
    return e, HostMemory(e)


def test_the_context_of_a_former_resident_comes_back_from_host_memory(engine):
    e, memory = with_host(engine, 400, policy="resident", max_num_seqs=2, blocks=64)
    e.add("a/0", program="a", prompt=text(1, 480), tokens=4)
    e.run()
    assert e.scheduler.state()["kept_blocks"] > 0
    # Its gap outlasts the value of keeping the context, and others fill the cache.
    e.now += 1000.0
    for number in range(6):
        e.add(f"{number}", program=f"other {number}", prompt=text(2 + number, 400), tokens=4)
        e.run()
    assert memory.loaded == 0
    e.add("a/1", program="a", prompt=[*text(1, 480), *[7] * 4, 9], tokens=20)
    # Admission may ask as often as it likes: that loads nothing.
    assert [e.scheduler.loadable_tokens("a/1") for _ in range(2)] == [480, 480]
    assert memory.loaded == 0
    e.run()
    assert e.reports[-1].cached_tokens == 480
    assert memory.loaded == 30
    assert e.tokens["a/1"] == [7] * 20


def test_a_prefill_while_tools_run_brings_the_context_back_before_the_call(engine):
    e, memory = with_host(engine, 400, policy="resident", max_num_seqs=2, blocks=64)
    e.add("a/0", program="a", prompt=text(1, 480), tokens=4)
    e.run()
    e.now += 1000.0
    for number in range(6):
        e.add(f"{number}", program=f"other {number}", prompt=text(2 + number, 400), tokens=4)
        e.run()
    known = [*text(1, 480), *[7] * 4]
    tags = {"weft_tags": [len(known), int(Tag.PARTIAL_PREFILL)]}
    e.add("a/prefill", program="a", prompt=known, tokens=1, extra=tags)
    e.run()
    assert memory.loaded == 30
    e.add("a/1", program="a", prompt=[*known, 9], tokens=4)
    e.run()
    assert e.reports[-1].cached_tokens == 480
    assert memory.loaded == 30


def test_requests_that_are_loaded_take_slots(engine):
    """vLLM counts requests that run. It would load all that wait, in whatever order."""
    e, memory = with_host(engine, 400, policy="program_fifo", max_num_seqs=2, blocks=90)
    for number in range(6):
        e.add(f"{number}/0", program=f"p{number}", prompt=text(number, 320))
        e.run()
    e.scheduler.reset_prefix_cache()
    for number in range(6):
        e.add(f"{number}/1", program=f"p{number}", prompt=text(number, 330), tokens=8)
    e.run()
    assert memory.loaded >= 6 * 20
    assert memory.most == 2


@pytest.mark.parametrize("policy", ["resident", "plas"])
@pytest.mark.parametrize(
    ("host", "swap_slots"), [(20, 0), (400, 0), (400, 40)], ids=["small", "large", "beside swap"]
)
def test_whatever_happens_every_step_reads_what_its_context_wrote(engine, policy, host, swap_slots):
    """Calls of programs of two tenants and of none arrive, are preempted and aborted; programs are
    pinned and end, caches are emptied."""
    e, memory = with_host(
        engine, host, swap_slots, policy=policy, max_num_seqs=3, blocks=60, step_tokens=96
    )
    random, alive, wanted = Random(1), [], {}
    for number in range(80):
        name, program = f"c{number}", random.randrange(9)
        e.add(
            name,
            program=f"p{program}" if program else "",
            arrival=float(program),
            tenant="ab"[program % 2],
            salt="ab"[program % 2],
            extra={"weft_retain": 50.0} if random.random() < 0.2 else None,
            prompt=text(program, random.randint(1, 500)),
            tokens=wanted.setdefault(name, random.randint(1, 30)),
        )
        alive.append(name)
        for _ in range(random.randrange(9)):
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
        elif chance < 0.23:
            e.scheduler.obey(Command(reset_cache=True))
        elif chance < 0.4:
            able = [r for r in e.scheduler.running if e.scheduler.can_be_preempted(r)]
            if able:
                e.scheduler.preempt(random.choice(able), e.now)
        assert e.scheduler.violations() == []
    e.run()
    assert {name: len(e.tokens[name]) for name in wanted} == wanted
    assert memory.loaded > 0
    assert memory.most <= 3
    assert e.scheduler.state()["held_back"] == 0
