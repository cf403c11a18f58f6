"""Tagged eviction on vLLM's real KV-cache manager: Figures 5 and 7 of Sutradhara, and pins."""

from __future__ import annotations

from typing import Any

import pytest

from engine_patches.channel import Command
from engine_patches.tags import Tag

pytestmark = pytest.mark.engine

# Four blocks of prompt in the first iteration, two of tool output in the second.
QUERY, TOOLS = 64, 32


def prompt(program: int, tools: bool) -> list[int]:
    start = 100 * program
    return list(range(start, start + QUERY + (TOOLS if tools else 0)))


def iterate(e: Any, program: int, second: bool) -> None:
    """One call of a program, alone on the engine."""
    tags = [QUERY, int(Tag.USER_QUERY), *([QUERY + TOOLS, int(Tag.TOOL_OUTPUT)] if second else [])]
    e.add(
        f"R{program}{2 if second else 1}", program=f"R{program}", tokens=20,
        prompt=prompt(program, second), extra={"weft_tags": tags},
    )  # fmt: skip
    e.run()


def cached(e: Any) -> dict[str, int]:
    return {report.call: report.cached_tokens for report in e.reports}


@pytest.mark.parametrize(
    ("tags", "hits"),
    [
        # Each second iteration pushes out what the next one needs: the cascade of Figure 5.
        (False, {"R22": 64, "R12": 32, "R32": 16}),
        # Answers and tool outputs go first, and the first iterations' contexts stay: Figure 7.
        (True, {"R22": 64, "R12": 64, "R32": 64}),
    ],
)
def test_figures_5_and_7(engine, tags, hits):
    """Three programs of two iterations, and a cache that just holds three first iterations."""
    e = engine(policy="fcfs", blocks=17, tags=tags)
    for program in (1, 2, 3):
        iterate(e, program, second=False)
    for program in (2, 1, 3):
        iterate(e, program, second=True)
    found = {report.call: report.cached_tokens for report in e.reports}
    assert {name: found[name] for name in hits} == hits
    assert all(len(tokens) == 20 for tokens in e.tokens.values())


def test_hints_are_reported_as_applied_or_ignored(engine):
    e = engine(policy="plas")
    e.add("good", extra={"weft_tags": [3, 4], "weft_retain": 5.0, "weft_priority": 99})
    e.add("bad", extra={"weft_tags": [9, 77], "weft_retain": "x", "weft_priority": 1.5})
    e.add("flat", extra={"weft_tags": "SYSTEM"})
    e.run()
    hints = {r.call: dict(h.split("=", 1) for h in r.hints) for r in e.reports}
    assert hints["good"] == {
        "weft_tags": "applied", "weft_retain": "applied", "weft_priority": "applied, clamped"
    }  # fmt: skip
    assert hints["bad"].keys() == {"weft_tags", "weft_retain", "weft_priority"}
    assert all(said.startswith("ignored: ") for said in hints["bad"].values())
    assert hints["flat"] == {"weft_tags": "ignored: malformed"}


def test_without_tags_hints_about_the_cache_are_reported_as_ignored(engine):
    e = engine(policy="plas", tags=False)
    e.add("call", extra={"weft_tags": [3, 4], "weft_retain": 5.0})
    e.run()
    assert [hint.partition("=")[2].partition(":")[0] for hint in e.reports[0].hints] == [
        "ignored"
    ] * 2


def test_a_pin_keeps_a_context_that_would_have_gone(engine):
    for pinned in (False, True):
        e = engine(policy="fcfs", blocks=13)
        e.add("first", program="P", prompt=prompt(1, tools=False), tokens=2)
        e.run()
        if pinned:
            e.scheduler.obey(Command(kv="retain", program="P", ttl_s=1000.0))
        for program, tools in ((2, False), (3, True)):
            e.add(f"other{program}", prompt=prompt(program, tools), tokens=2)
            e.run()
        e.add("again", program="P", prompt=prompt(1, tools=False), tokens=2)
        e.run()
        # The last block of a prompt is always computed.
        assert (cached(e)["again"] == 48) == pinned


def test_a_cache_full_of_pins_never_blocks_a_call(engine):
    e = engine(policy="plas", blocks=12, pin_share=1.0)
    for program in range(1, 6):
        e.add(
            f"c{program}", program=f"P{program}", prompt=prompt(program, tools=True), tokens=20,
            extra={"weft_retain": 3600.0},
        )  # fmt: skip
        e.run()
        state = e.scheduler.state()["kv"]
        assert 0 < state["pinned_blocks"] <= state["pinned_blocks_limit"]
    assert all(len(tokens) == 20 for tokens in e.tokens.values())


def test_pins_expire_and_an_emptied_cache_knows_nothing(engine):
    e = engine(policy="plas", blocks=40)
    e.add("c", program="P", prompt=prompt(1, tools=False), tokens=2, extra={"weft_retain": 10.0})
    e.run()
    assert e.scheduler.state()["kv"]["pins"] == 1
    e.now += 11.0
    e.add("d", program="Q", tokens=1)
    e.run()
    assert e.scheduler.state()["kv"]["pins"] == 0
    assert e.scheduler.state()["kv"]["blocks_by_tag"]["NONE"] > 0
    e.scheduler.obey(Command(reset_cache=True))
    assert sum(e.scheduler.state()["kv"]["blocks_by_tag"].values()) == 0
    assert e.scheduler.violations() == []


def test_a_lowered_program_goes_before_a_raised_one(engine):
    e = engine(policy="fcfs", blocks=11)
    for number, priority in ((1, 2), (2, -2)):
        e.add(
            f"c{number}", program=f"P{number}", prompt=prompt(number, tools=False), tokens=2,
            extra={"weft_tags": [QUERY, int(Tag.USER_QUERY)], "weft_priority": priority},
        )  # fmt: skip
        e.run()
    e.add("other", prompt=list(range(400, 460)), tokens=2)
    e.run()
    for number in (1, 2):
        e.add(f"again{number}", prompt=prompt(number, tools=False), tokens=1)
        e.run()
    # The older one was raised, and has outlived the younger one.
    assert cached(e)["again1"] == 48
    assert cached(e)["again2"] < 48


def test_the_next_call_is_told_that_a_pin_has_ended_and_why(engine):
    e = engine(policy="plas", blocks=40, pin_share=0.2)
    for program in (1, 2):
        e.add(
            f"c{program}", program=f"P{program}", prompt=prompt(program, tools=True), tokens=2,
            extra={"weft_retain": 10.0},
        )  # fmt: skip
        e.run()
    e.now += 60.0
    for name, program in (("d1", "P1"), ("d2", "P2"), ("e2", "P2")):
        e.add(name, program=program, tokens=1)
        e.run()
    hints = {report.call: report.hints for report in e.reports}
    assert hints["d1"] == ("weft_retain=expired: another pin needed the room",)
    assert hints["d2"] == ("weft_retain=expired: its time was over",)
    assert hints["e2"] == ()
