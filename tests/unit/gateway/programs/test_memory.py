"""Guarantees of the in-memory table only. The contract suite tests the rest."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from weft_gateway.model import EndedProgram, Opening, ProgramKey
from weft_gateway.programs.memory import MemoryTable, at_once

pytestmark = pytest.mark.anyio


def key(name):
    return ProgramKey("t", name)


def opening(name, now_s, call=None):
    return Opening(key(name), call or f"call-{name}", "main", "r0", frozenset({"r0"}), False, now_s)


async def test_full_table_evicts_the_least_recently_active_programs():
    table = MemoryTable(max_programs=2)
    await table.open_call(opening("busy", 1.0))
    for now, name in enumerate(("old", "older", "new"), start=2):
        await table.start(key(name), float(now))
    await table.start(key("old"), 9.0)
    assert await table.expire(10.0, idle_s=1000.0) == [
        EndedProgram(key("older"), ()),
        EndedProgram(key("new"), ()),
    ]
    assert [p.key.program for p in await table.programs("t", 9)] == ["busy", "old"]
    assert await table.check() == []


async def test_tenant_with_the_most_programs_is_evicted_first():
    table = MemoryTable(max_programs=4)
    await table.start(ProgramKey("small", "first"), 1.0)
    for now in range(2, 8):
        await table.start(key(str(now)), float(now))
    gone = await table.expire(10.0, idle_s=1000.0)
    assert [program.key for program in gone] == [key("2"), key("3"), key("4")]
    assert await table.get(ProgramKey("small", "first")) is not None
    assert await table.check() == []


async def test_backward_clock_does_not_age_a_program():
    table = MemoryTable()
    await table.start(key("p"), 100.0)
    await table.start(key("p"), 50.0)
    assert await table.expire(105.0, idle_s=10.0) == []


async def test_returned_row_is_a_snapshot():
    table = MemoryTable()
    first = await table.open_call(opening("p", 1.0, "a"))
    await table.open_call(opening("p", 2.0, "b"))
    assert first.in_flight == {"r0": 1}
    assert len(first.program.threads) == 1


async def test_integrity_check_finds_each_fault():
    table = MemoryTable()
    await table.open_call(opening("p", 1.0))
    sound = table._programs[key("p")]

    table._programs[key("p")] = replace(sound, threads=())
    assert any("opened" in fault for fault in await table.check())
    table._programs[key("p")] = replace(sound, service_s=-1.0)
    assert any("service_s" in fault for fault in await table.check())
    table._programs[key("p")] = sound
    table._in_flight["r0"] = 5
    assert any("in flight" in fault for fault in await table.check())
    table._in_flight["r0"] = 1
    table._open.clear()
    assert any("open calls" in fault for fault in await table.check())


def test_waiting_coroutine_cannot_run_immediately():
    with pytest.raises(RuntimeError, match="must not wait"):
        at_once(asyncio.sleep(0))
