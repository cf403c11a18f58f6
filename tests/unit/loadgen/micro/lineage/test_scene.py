"""The accuracy goals of lineage, on generated programs and, if available, on recorded ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from support.lineage import synthetic
from weft_bench.micro.lineage.command import pairs
from weft_bench.micro.lineage.data import read
from weft_bench.micro.lineage.scene import costs, play
from weft_bench.micro.lineage.variants import NAMES, VARIANTS
from weft_bench.workloads.streams import stream

DATA = Path(__file__).resolve().parents[6] / "shared" / "data"
# Goals hold for clients that see each answer, and ask once or repeat what failed.
SEEN = [name for name in VARIANTS if name not in ("answers unseen", "asked twice")]


def reached(programs, variant):
    """Return whether a variant reaches the goals, for calls whose prompt has text."""
    played = asyncio.run(play([VARIANTS[variant](calls) for calls in programs]))
    found = pairs(played.with_text)
    return found[0] >= 0.99 and found[1] >= 0.95, (variant, found)


@pytest.mark.parametrize("variant", SEEN)
def test_parallel_programs_are_found(variant):
    good, figures = reached(synthetic(seed=1, tasks=30), variant)
    assert good, figures


@pytest.mark.parametrize("name", ["one cache key", "id per request", "key until the middle"])
def test_names_that_mislead_change_nothing(name):
    programs = synthetic(seed=1, programs=12)
    plain, named = (asyncio.run(play(calls)) for calls in (programs, [*map(NAMES[name], programs)]))
    assert (named.at_once, named.in_the_end) == (plain.at_once, plain.in_the_end)


def test_a_new_session_per_request_is_trusted():
    played = asyncio.run(play([NAMES["session per request"](c) for c in synthetic(1, programs=4)]))
    assert pairs(played.at_once) == (1.0, 0.0)


def test_a_key_that_changes_at_a_compaction_is_no_worse_than_none():
    programs = synthetic(seed=1, programs=12)
    for kind in ("compacted, no key", "compacted, new key"):
        played = asyncio.run(play([NAMES[kind](calls) for calls in programs]))
        precision, recall = pairs(played.in_the_end)
        assert precision == 1.0
        assert recall > 0.95


def test_client_that_asks_twice_splits_its_programs_but_joins_no_others():
    # If both calls are answered, a repeated first call looks like a second program's.
    calls = [VARIANTS["asked twice"](calls) for calls in synthetic(seed=1, tasks=40)]
    precision, recall = pairs(asyncio.run(play(calls)).with_text)[:2]
    assert precision == 1.0
    assert 0.3 < recall < 0.6


def test_programs_of_one_task_that_start_together_are_separated_in_the_end():
    programs = synthetic(seed=1, tasks=10)
    played = asyncio.run(play(programs))
    assert pairs(played.in_the_end) == (1.0, 1.0)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded programs are not here")
@pytest.mark.parametrize(("name", "most"), [("tau_airline", 60), ("miniswe", 20), ("magagent", 12)])
def test_recorded_programs_are_found(name, most):
    programs = read(DATA, name, seed=3)
    sample = stream(3, name).sample(programs, most)
    for variant in SEEN:
        good, figures = reached(sample, variant)
        assert good, figures


def test_calls_and_memory_are_measured():
    programs = synthetic(seed=2, programs=8)
    played = asyncio.run(play(programs, weigh=True))
    calls = sum(map(len, programs))
    assert len(played.at_once) == len(played.in_the_end) == len(played.ask_s) == calls
    assert len(played.answer_s) == calls
    assert played.fingerprints > calls
    assert played.held_bytes > 50 * played.fingerprints


def test_costs_cover_each_kind_of_call():
    found = asyncio.run(costs(2, Random(1)))
    assert len(found) == 6
    assert all(len(seconds) == 2 for seconds in found.values())
