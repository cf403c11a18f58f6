"""Guarantees of the in-memory table only. The contract suite tests the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_gateway.model import Opening, ProgramKey
from weft_gateway.programs.memory import MemoryTable

pytestmark = pytest.mark.anyio


def key(name):
    return ProgramKey("t", name)


def opening(name, now_s, call=None):
    return Opening(key(name), call or f"call-{name}", "main", "r0", frozenset({"r0"}), False, now_s)


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
