"""The gateway's objects in virtual time."""

from __future__ import annotations

from random import Random

import pytest
from weft_bench.virtual.front import Front, tags_of
from weft_bench.workloads.schema import Part
from weft_engine.tags import Tag
from weft_engine.wire import CallReport
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex


def front(balancer="least_used", threshold=2048):
    return Front(("a", "b"), balancer, Random(0), threshold)


def test_call_gets_the_service_of_its_program():
    gate = front()
    gate.begin("p", 1.0)
    name, context = gate.place("p", "0", "p/0", 10, 2.0)
    assert (context.program, context.service_s, context.arrival_s) == ("p", 0.0, 1.0)
    assert gate.table.in_flight() == {name: 1}
    gate.close(CallReport("p/0", service_s=2.0, waiting_s=0.5, prompt_tokens=10), 5.0)
    _, context = gate.place("p", "1", "p/1", 10, 6.0, tags=[10, 3])
    assert (context.service_s, context.waiting_s, context.critical_path_s) == (2.0, 0.5, 2.0)
    assert context.tags == (10, 3)
    assert gate.violations() == ["process table: calls are open: ['p/1']"]
    gate.close(CallReport("p/1"), 7.0)
    gate.end("p", 7.0)
    assert gate.violations() == []


def test_the_replica_of_a_program_s_last_call_is_notified_of_its_end():
    gate = front("locality", 100)
    for name, tokens in (("short", 100), ("long", 101)):
        gate.begin(name, 0.0)
        place, _ = gate.place(name, "0", f"{name}/0", tokens, 0.0)
        gate.close(CallReport(f"{name}/0"), 1.0)
        assert gate.end(name, 2.0) == (place,)


def test_front_uses_the_production_router():
    gate = front("round_robin")
    names = [gate.place("p", "0", f"p/{i}", 10, 0.0)[0] for i in range(4)]
    assert names == ["a", "b", "a", "b"]
    gate = front("least_used")
    assert {gate.place("p", "0", f"p/{i}", 10, 0.0)[0] for i in range(2)} == {"a", "b"}
    gate = front("locality", 100)
    homes = [gate.place("p", "0", f"p/{i}", 500, 0.0)[0] for i in range(4)]
    assert len(set(homes)) == 1
    with pytest.raises(ValueError, match="locality"):
        front("guess")


def test_tags_need_a_kind_for_every_part():
    parts = (Part("s", 5, "system"), Part("q", 3, "user"), Part("r", 2, "user"))
    assert tags_of(parts) == [5, Tag.SYSTEM_PROMPT, 10, Tag.USER_QUERY]
    assert tags_of((*parts, Part("x", 1))) is None


def test_new_program_gets_its_home_by_its_prompt_prefix():
    sent = PrefixAffinityIndex(50_000)
    gate = Front(("a", "b", "c"), "locality", Random(0), 2048, sent=sent)

    def home(program, *names):
        parts = [Part(name, 4000, "system") for name in names]
        name, _ = gate.place(program, "0", f"{program}/0", 4000 * len(names), 0.0, parts=parts)
        return name

    first, other = home("p", "s", "x"), home("q", "t", "y")
    assert first != other
    assert home("r", "s", "x") == home("u", "s", "z") == first
    assert home("v", "t", "y") == other
    assert home("w", "k", "l") not in (first, other), "unknown prompt: least used"
