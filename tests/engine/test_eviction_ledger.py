"""Reports say which tokens of a prompt were evicted, by whom and when: vLLM's real scheduler."""

from __future__ import annotations

from random import Random

import pytest
from weft_engine.engine_link import Command
from weft_engine.eviction_ledger import EvictionLedger

pytestmark = pytest.mark.engine


def text(who: int, length: int) -> list[int]:
    """A program's own tokens."""
    return [who * 600 + n for n in range(length)]


def play(e, name, who, length, **options):
    """Run one call alone, and return its report."""
    e.add(name, program=name.partition("/")[0], prompt=text(who, length), tokens=2, **options)
    e.run()
    return e.reports[-1]


def test_a_report_names_the_program_that_took_the_most(engine):
    e = engine(policy="fcfs", blocks=64)
    assert play(e, "a/0", 1, 480).evicted_tokens == 0
    play(e, "small/0", 2, 490)
    play(e, "large/0", 3, 560)
    e.now += 40.0
    again = play(e, "a/1", 1, 480)
    assert (again.cached_tokens, again.evicted_tokens, again.loaded_tokens) == (0, 480, 0)
    assert again.evicted_by == "large"
    assert 40 < again.evicted_s < 45
    # What was never cached, and the block that vLLM computes again in any case, is not evicted.
    longer = play(e, "a/2", 1, 560)
    assert (longer.cached_tokens, longer.evicted_tokens) == (480, 0)
    assert play(e, "a/3", 1, 560).evicted_tokens == 0


def test_a_cache_that_was_emptied_was_not_taken_by_anybody(engine):
    e = engine(policy="fcfs", blocks=64)
    play(e, "a/0", 1, 480)
    play(e, "b/0", 2, 720)
    e.scheduler.obey(Command(reset_cache=True))
    e.now += 7.0
    again = play(e, "a/1", 1, 480)
    assert (again.cached_tokens, again.evicted_tokens, again.evicted_by) == (0, 0, "")
    assert again.emptied_s == 7.0


def test_tokens_from_host_memory_are_loaded_and_not_evicted(engine):
    from host_memory import HostMemory, offloading
    from vllm.config import KVTransferConfig

    e = engine(transfer=KVTransferConfig(**offloading(400)), policy="fcfs", blocks=64)
    HostMemory(e)
    play(e, "a/0", 1, 480)
    play(e, "b/0", 2, 960)
    # Two blocks of its beginning are still in the cache.
    back = play(e, "a/1", 1, 500)
    assert (back.cached_tokens, back.loaded_tokens, back.evicted_tokens) == (480, 448, 0)
    again = play(e, "a/2", 1, 500)
    assert (again.cached_tokens, again.loaded_tokens) == (496, 0)


@pytest.mark.parametrize("seed", range(2))
def test_evicted_are_the_blocks_that_were_cached_once_and_are_no_more(engine, seed):
    """Contexts share beginnings, grow, and run together: each report against all that was ever
    cached."""
    rng = Random(seed)
    e = engine(policy="resident", max_num_seqs=4, blocks=80)
    # It would forget what was lost long ago.
    e.scheduler._eviction.ledger._most = 1_000_000
    lengths = dict.fromkeys(range(8), 100)
    was_cached: set[tuple[int, ...]] = set()
    evicted = 0
    for number in range(120):
        batch = rng.sample(sorted(lengths), rng.randint(1, 3))
        before = set(was_cached)
        for who in batch:
            lengths[who] = min(600, lengths[who] + rng.randint(0, 60))
            prompt = [*text(who // 2, 200), *text(20 + who, 600)][: lengths[who]]
            e.add(f"{who}/{number}", program=str(who), prompt=prompt, tokens=rng.randint(1, 20))
            blocks = range(16, lengths[who] + 1, 16)
            was_cached |= {tuple(prompt[:end]) for end in blocks}
        e.run()
        if len(batch) > 1:
            # Who of them was first is vLLM's choice.
            continue
        report, prompt = e.reports[-1], [*text(batch[0] // 2, 200), *text(20 + batch[0], 600)]
        ends = range(16, lengths[batch[0]] + 1, 16)
        known = sum(16 for end in ends if tuple(prompt[:end]) in before)
        # vLLM computes the last token of a prompt in any case.
        missing = max(0, known - report.cached_tokens)
        whole = report.cached_tokens == (lengths[batch[0]] - 1) // 16 * 16
        assert report.evicted_tokens == (0 if whole else missing), (number, report)
        evicted += report.evicted_tokens
    assert evicted > 2000


def test_a_ledger_forgets_the_oldest_losses():
    ledger = EvictionLedger(10)
    for number in range(100):
        ledger.taken([1], [f"key {number}"])
        ledger.settle([("p", [1])], float(number))
    assert len(ledger) <= 40
    assert ledger.loss(["key 0"]).blocks == 0
    assert ledger.loss(["key 99", "key 98", "new"]) == (2, "p", 99.0)
